import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    environment: "happy-dom",
    setupFiles: ["tests/setup.ts"],
    include: ["tests/**/*.test.{ts,tsx}"],
    // One worker: the machine is shared, and all of it takes seconds.
    pool: "threads",
    maxWorkers: 1,
    testTimeout: 20_000,
  },
});
