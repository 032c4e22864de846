/** The way over a comm, where the Jupyter server has no relay to the kernel. The kernel answers at once even while a cell blocks
 * it; what is said to it would wait for the cell's end, and so goes by the control channel then. */

import type { Kernel } from "@jupyterlab/services";
import { KernelMessage } from "@jupyterlab/services";
import type { JSONObject } from "@lumino/coreutils";
import type { FromKernel, ToKernel } from "../protocol";
import type { Ended, OpenWay } from "./way";

const TARGET = "ipymcp";
const REQUEST = "ipymcp_request";
const ABSENT: Ended = { why: "absent", message: "ipymcp is not loaded in this kernel.", hint: "%load_ext ipymcp" };
const MUTE: Ended = { why: "silent", message: "The kernel did not answer while it was busy. It is asked again." };

export function commTo(kernel: Kernel.IKernelConnection): OpenWay {
  return (events) => {
    const comm = kernel.createComm(TARGET);
    let isOver = false;
    let wasHeard = false;
    const end = (how: Ended): void => {
      kernel.statusChanged.disconnect(statusChanged);
      if (!isOver) events.ended(how);
      isOver = true;
    };
    comm.onMsg = ({ content }) => {
      wasHeard = true;
      if (!isOver) events.heard(content.data as unknown as FromKernel);
    };
    // A kernel that does not know the target closes it.
    comm.onClose = () => end(ABSENT);
    // A busy one is spoken to by the control channel from the first, and knows nothing of the comm before that.
    const isByControl = isBusy(kernel);
    if (!isByControl) comm.open();
    // One that does not know such requests never answers: it is asked anew when it is free.
    const statusChanged = (_: unknown, status: Kernel.Status): void => {
      if (isByControl && !wasHeard && status === "idle") end(MUTE);
    };
    kernel.statusChanged.connect(statusChanged);
    queueMicrotask(() => {
      if (!isOver) events.opened();
    });
    return {
      send(message) {
        if (comm.isDisposed) return;
        const whole = message.kind === "hello" ? { ...message, control: true } : message;
        if (isByControl || isBusy(kernel)) control(kernel, comm.commId, whole);
        else comm.send(whole as unknown as JSONObject);
      },
      close() {
        kernel.statusChanged.disconnect(statusChanged);
        isOver = true;
        if (!comm.isDisposed && !kernel.isDisposed) comm.close();
      },
    };
  };
}

function isBusy({ status }: Kernel.IKernelConnection): boolean {
  return status === "busy";
}

/** A kernel without ipymcp, or without such requests, does not answer. */
function control(kernel: Kernel.IKernelConnection, commId: string, data: ToKernel): void {
  const request = KernelMessage.createMessage({
    msgType: REQUEST as "debug_request",
    channel: "control",
    username: kernel.username,
    session: kernel.clientId,
    content: { comm_id: commId, data } as never,
  });
  kernel.sendControlMessage(request, false, true);
}
