/**
 * The boundary to the service control manager of Windows (advapi32): the process reports its state and receives control codes. Tested
 * under Wine, not on Windows. Reference windows-hcn.md §5.3.
 */
import { systemLibrary, windowsKoffi } from "./system-library.ts";

/** States that a service reports (winsvc.h). */
const SERVICE_STATES = { stopped: 1, startPending: 2, stopPending: 3, running: 4 } as const;
export type ServiceState = keyof typeof SERVICE_STATES;

/** Control codes that a service receives (winsvc.h). */
export const SERVICE_CONTROLS = { stop: 1, interrogate: 4, shutdown: 5, paramChange: 6 } as const;

/** The control codes that it accepts: stop, shutdown, changed parameters. */
const ACCEPTS_WHILE_RUNNING = 0x1 | 0x4 | 0x8;
const OWN_PROCESS = 0x10;

/** The service control manager, as a service sees it. */
export interface ServiceCalls {
  /**
   * Connects the process to the manager, which must have started it.
   *
   * @returns true once the service has stopped; false if no manager is waiting for this process.
   */
  dispatch(service: { main(): void; control(code: number): void }): Promise<boolean>;
  /** Reports the state of the service, once `main` was called. @param waitHintMs how long a pending state may take. */
  report(state: ServiceState, waitHintMs?: number): void;
}

/** Opens the library. @param name of the service. @throws Error on other systems. */
export function openServiceCalls(name: string): ServiceCalls {
  const koffi = windowsKoffi();
  const library = systemLibrary("advapi32.dll");
  koffi.proto("void __stdcall ServiceMain(uint32_t count, void *words)");
  koffi.proto("uint32_t __stdcall HandlerEx(uint32_t control, uint32_t type, void *data, void *context)");
  koffi.struct("SERVICE_TABLE_ENTRYW", { name: "str16", main: "ServiceMain *" });
  const dispatcher = library.func("int32_t __stdcall StartServiceCtrlDispatcherW(SERVICE_TABLE_ENTRYW *entries)");
  const register = library.func(
    "void * __stdcall RegisterServiceCtrlHandlerExW(const char16_t *name, HandlerEx *handler, void *context)",
  );
  const setStatus = library.func("int32_t __stdcall SetServiceStatus(void *service, const uint8_t *status)");
  let handle: unknown = null;
  return {
    // The call lasts as long as the service, on its own thread; its callbacks run on this one.
    dispatch: ({ main, control }) =>
      new Promise((resolve, reject) => {
        const handler = koffi.register((code: number) => {
          control(code);
          return NO_ERROR;
        }, "HandlerEx *");
        const entry = koffi.register(() => {
          handle = register(name, handler, null);
          main();
        }, "ServiceMain *");
        const entries = [
          { name, main: entry },
          { name: null, main: null },
        ];
        dispatcher.async(entries, (error: Error | null, result: number) => {
          if (error === null) resolve(result !== 0);
          else reject(error);
        });
      }),
    report(state, waitHintMs = 0) {
      if (handle !== null) setStatus(handle, statusBytes(state, waitHintMs));
    },
  };
}

const NO_ERROR = 0;

/** SERVICE_STATUS: seven 32-bit numbers. */
function statusBytes(state: ServiceState, waitHintMs: number): Buffer {
  const isPending = state === "startPending" || state === "stopPending";
  const accepts = state === "running" ? ACCEPTS_WHILE_RUNNING : 0;
  const numbers = [OWN_PROCESS, SERVICE_STATES[state], accepts, NO_ERROR, 0, isPending ? 1 : 0, waitHintMs];
  return Buffer.from(new Uint32Array(numbers).buffer);
}
