import { configure } from "@testing-library/preact";

// What does not come is a fault after this time; a loaded machine takes more than the default of a second.
configure({ asyncUtilTimeout: 10_000 });
