/** This process as a Windows service: a stop command has the effect of Ctrl-C. Reference windows-hcn.md §5.3. */
import { SERVICE_CONTROLS, type ServiceCalls, type ServiceState } from "../../kernel/windows/service-calls.ts";
import type { Logger } from "../../logging/logger.ts";

/** Its name in the service control manager. */
export const SERVICE_NAME = "kube-proxy";

/** Added to the program's own limit when the manager asks how long a stop may take. */
const MARGIN_MS = 2_000;

export interface WindowsServiceOptions {
  readonly calls: ServiceCalls;
  readonly log: () => Logger;
  /** How long a stop may currently take. */
  readonly stopLimitMs: () => number;
  /** The manager requests a stop. */
  readonly onStop: (reason: string) => void;
}

export class WindowsService {
  readonly #options: WindowsServiceOptions;
  #state: ServiceState = "startPending";
  #dispatched: Promise<boolean> = Promise.resolve(false);

  private constructor(options: WindowsServiceOptions) {
    this.#options = options;
  }

  /**
   * Registers the process. Resolves when the manager knows that it runs.
   *
   * Rejects if the manager did not start this process; if no manager answers, Windows takes half a minute to say so.
   */
  static async start(options: WindowsServiceOptions): Promise<WindowsService> {
    const service = new WindowsService(options);
    const isRunning = new Promise<true>((resolve) => {
      service.#dispatched = options.calls.dispatch({
        main: () => {
          service.#report("startPending");
          service.#report("running");
          options.log().info("Running kube-proxy as a Windows service!");
          resolve(true);
        },
        control: (code) => service.#obey(code),
      });
    });
    if (await Promise.race([isRunning, service.#dispatched])) return service;
    throw new Error(
      "the service control manager did not start this process: without --windows-service and windowsRunAsService it runs by " +
        `itself; as a service it is started with "sc.exe start ${SERVICE_NAME}"`,
    );
  }

  /**
   * The program ends with this status. After a failure, nothing is reported to the manager, so that it restarts the
   * service if so configured (sc.exe failure).
   */
  async ended(status: number): Promise<void> {
    if (status !== 0) return;
    this.stopped();
    await this.#dispatched;
  }

  /** The program ends now. */
  stopped(): void {
    this.#report("stopped");
  }

  #obey(code: number): void {
    const { log, stopLimitMs, onStop } = this.#options;
    if (code === SERVICE_CONTROLS.stop || code === SERVICE_CONTROLS.shutdown) {
      log().info("Service stopping");
      this.#report("stopPending", stopLimitMs() + MARGIN_MS);
      onStop(code === SERVICE_CONTROLS.stop ? "service stop" : "system shutdown");
    } else if (code === SERVICE_CONTROLS.interrogate || code === SERVICE_CONTROLS.paramChange) {
      this.#report(this.#state, this.#state === "stopPending" ? stopLimitMs() + MARGIN_MS : 0);
    }
  }

  #report(state: ServiceState, waitHintMs = 0): void {
    this.#state = state;
    this.#options.calls.report(state, waitHintMs);
  }
}
