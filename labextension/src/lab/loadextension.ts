/** Load ipymcp in a kernel. */

import type { Kernel, KernelMessage } from "@jupyterlab/services";

import { trans } from "../translation";

export const LOAD = "%load_ext ipymcp";
export const RELOAD = "%reload_ext ipymcp";
const REPOSITORY = "git+https://github.com/ipymcp/ipymcp";
export const INSTALL = `%pip install ${REPOSITORY}`;
export const UPGRADE = `%pip install --upgrade ${REPOSITORY}`;

export interface LoadProblem {
  message: string;
  /** A line of code that fixes the problem. */
  remedy: string | null;
}

const missing = (): LoadProblem => ({
  message: trans.__("ipymcp is not installed in this kernel's environment."),
  remedy: INSTALL,
});

/** Run a line in the kernel once it is idle; return the problem, or null. */
export async function loadExtension(kernel: Kernel.IKernelConnection, code: string): Promise<LoadProblem | null> {
  let reply: KernelMessage.IExecuteReplyMsg | undefined;
  try {
    reply = await kernel.requestExecute({ code, store_history: false, allow_stdin: false, stop_on_error: false }).done;
  } catch (error) {
    return { message: String(error), remedy: null };
  }
  return problemIn(reply?.content);
}

function problemIn(content: KernelMessage.IReplyErrorContent | { status: string } | undefined): LoadProblem | null {
  if (content?.status === "ok") return null;
  if (!content || !("ename" in content)) {
    return { message: trans.__("The kernel was interrupted, or ended."), remedy: null };
  }
  const { ename, evalue } = content;
  if (ename === "ModuleNotFoundError" && /'ipymcp'/.test(evalue)) return missing();
  return { message: `${ename}: ${evalue}`, remedy: null };
}
