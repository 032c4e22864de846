/** The way over a comm, where the Jupyter server has no relay to the kernel: what is asked for may wait for a cell's end. */

import type { Kernel } from "@jupyterlab/services";
import type { JSONObject } from "@lumino/coreutils";
import type { FromKernel } from "../protocol";
import type { Ended, OpenWay } from "./way";

const TARGET = "ipymcp";
const ABSENT: Ended = { why: "absent", message: "ipymcp is not loaded in this kernel.", hint: "%load_ext ipymcp" };

export function commTo(kernel: Kernel.IKernelConnection): OpenWay {
  return (events) => {
    const comm = kernel.createComm(TARGET);
    let isOver = false;
    comm.onMsg = ({ content }) => {
      if (!isOver) events.heard(content.data as unknown as FromKernel);
    };
    // A kernel that does not know the target closes it.
    comm.onClose = () => {
      if (!isOver) events.ended(ABSENT);
      isOver = true;
    };
    comm.open();
    queueMicrotask(() => {
      if (!isOver) events.opened();
    });
    return {
      send(message) {
        if (!comm.isDisposed) comm.send(message as unknown as JSONObject);
      },
      close() {
        isOver = true;
        if (!comm.isDisposed && !kernel.isDisposed) comm.close();
      },
    };
  };
}
