/** Connect over a comm, for Jupyter servers without a relay. A kernel handles comm messages only when no cell runs, so messages
 * to a busy kernel are sent on the control channel. Once the kernel has declared that it supports this, all messages are: after a
 * control request JupyterLab considers a kernel idle, even while a cell runs. */

import type { Kernel } from "@jupyterlab/services";
import { KernelMessage } from "@jupyterlab/services";
import type { JSONObject } from "@lumino/coreutils";
import type { FromKernel, ToKernel } from "../protocol";
import { trans } from "../translation";
import type { ConnectionEnd, Connect } from "./connection";
import { LOAD } from "./loadextension";

const TARGET = "ipymcp";
const CONTROL_MESSAGE = "ipymcp_request";
const absent = (): ConnectionEnd => ({
  reason: "absent",
  message: trans.__("ipymcp is not loaded in this kernel."),
  hint: LOAD,
});
const silent = (): ConnectionEnd => ({
  reason: "silent",
  message: trans.__("The kernel did not respond while it was busy. Retrying."),
});

export function connectByComm(kernel: Kernel.IKernelConnection): Connect {
  return (events) => {
    const comm = kernel.createComm(TARGET);
    let hasEnded = false;
    let hasReceived = false;
    let hasControl = false;
    const end = (how: ConnectionEnd): void => {
      kernel.statusChanged.disconnect(statusChanged);
      if (!hasEnded) events.ended(how);
      hasEnded = true;
    };
    comm.onMsg = ({ content }) => {
      const message = content.data as unknown as FromKernel;
      hasReceived = true;
      if (message.kind === "hello") hasControl = message.control === true;
      if (!hasEnded) events.received(message);
    };
    // A kernel without the comm target closes the comm.
    comm.onClose = () => end(absent());
    // A busy kernel would not process comm_open in time, so use the control channel from the start.
    const usesControl = isBusy(kernel);
    if (!usesControl) comm.open();
    // A kernel without support for these requests never replies; retry when it is idle.
    const statusChanged = (_: unknown, status: Kernel.Status): void => {
      if (usesControl && !hasReceived && status === "idle") end(silent());
    };
    kernel.statusChanged.connect(statusChanged);
    queueMicrotask(() => {
      if (!hasEnded) events.opened();
    });
    return {
      send(message) {
        if (comm.isDisposed) return;
        const whole = message.kind === "hello" ? { ...message, control: true } : message;
        if (usesControl || hasControl || isBusy(kernel)) sendByControl(kernel, comm.commId, whole);
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
