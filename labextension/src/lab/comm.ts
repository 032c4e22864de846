/** Connect over a comm, for Jupyter servers without a relay. A busy kernel would read comm messages only later, so then
 * they are sent on the control channel. */

import type { Kernel } from "@jupyterlab/services";
import { KernelMessage } from "@jupyterlab/services";
import type { JSONObject } from "@lumino/coreutils";
import type { FromKernel, ToKernel } from "../protocol";
import type { ConnectionEnd, Connect } from "./connection";

const TARGET = "ipymcp";
const CONTROL_MESSAGE = "ipymcp_request";
const ABSENT: ConnectionEnd = {
  reason: "absent",
  message: "ipymcp is not loaded in this kernel.",
  hint: "%load_ext ipymcp",
};
const SILENT: ConnectionEnd = {
  reason: "silent",
  message: "The kernel did not respond while it was busy. Retrying.",
};

export function connectByComm(kernel: Kernel.IKernelConnection): Connect {
  return (events) => {
    const comm = kernel.createComm(TARGET);
    let hasEnded = false;
    let hasReceived = false;
    const end = (how: ConnectionEnd): void => {
      kernel.statusChanged.disconnect(statusChanged);
      if (!hasEnded) events.ended(how);
      hasEnded = true;
    };
    comm.onMsg = ({ content }) => {
      hasReceived = true;
      if (!hasEnded) events.received(content.data as unknown as FromKernel);
    };
    // A kernel without the comm target closes the comm.
    comm.onClose = () => end(ABSENT);
    // A busy kernel would not process comm_open in time, so use the control channel from the start.
    const usesControl = isBusy(kernel);
    if (!usesControl) comm.open();
    // A kernel without support for these requests never replies; retry when it is idle.
    const statusChanged = (_: unknown, status: Kernel.Status): void => {
      if (usesControl && !hasReceived && status === "idle") end(SILENT);
    };
    kernel.statusChanged.connect(statusChanged);
    queueMicrotask(() => {
      if (!hasEnded) events.opened();
    });
    return {
      send(message) {
        if (comm.isDisposed) return;
        const whole = message.kind === "hello" ? { ...message, control: true } : message;
        if (usesControl || isBusy(kernel)) sendByControl(kernel, comm.commId, whole);
        else comm.send(whole as unknown as JSONObject);
      },
      close() {
        kernel.statusChanged.disconnect(statusChanged);
        hasEnded = true;
        if (!comm.isDisposed && !kernel.isDisposed) comm.close();
      },
    };
  };
}

function isBusy({ status }: Kernel.IKernelConnection): boolean {
  return status === "busy";
}

/** Send on the control channel. Kernels without support for these requests do not reply. */
function sendByControl(kernel: Kernel.IKernelConnection, commId: string, data: ToKernel): void {
  const request = KernelMessage.createMessage({
    msgType: CONTROL_MESSAGE as "debug_request",
    channel: "control",
    username: kernel.username,
    session: kernel.clientId,
    content: { comm_id: commId, data } as never,
  });
  kernel.sendControlMessage(request, false, true);
}
