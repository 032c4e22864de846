/** The part of `@jupyterlab/running` that is used. The package itself would bring React. */
declare module "@jupyterlab/running" {
  import type { Token } from "@lumino/coreutils";
  import type { IDisposable } from "@lumino/disposable";
  import type { ISignal } from "@lumino/signaling";
  import type { LabIcon } from "@jupyterlab/ui-components";

  export namespace IRunningSessions {
    interface IRunningItem {
      open?: () => void;
      shutdown?: () => void;
      icon: () => LabIcon;
      label: () => string;
      labelTitle?: () => string;
      detail?: () => string;
    }
    interface IManager {
      name: string;
      running(): IRunningItem[];
      shutdownAll(): void;
      refreshRunning(): void;
      runningChanged: ISignal<unknown, unknown>;
      shutdownLabel?: string;
      shutdownAllLabel?: string;
      shutdownAllConfirmationText?: string;
    }
  }
  export interface IRunningSessionManagers {
    add(manager: IRunningSessions.IManager): IDisposable;
  }
  export const IRunningSessionManagers: Token<IRunningSessionManagers>;
}
