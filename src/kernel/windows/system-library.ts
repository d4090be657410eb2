/** The libraries of Windows, opened by koffi, which is loaded on first use. */
import { createRequire } from "node:module";

export type Koffi = typeof import("koffi");
export type Library = ReturnType<Koffi["load"]>;

/** The stack of a call on a worker thread. It is that of a Windows thread: RPC clients need more than koffi's 128 KiB. */
const STACK_BYTES = 1 << 20;

let configured: Koffi | undefined;

/** koffi, with the settings that it accepts only before it opens the first library. */
export function windowsKoffi(): Koffi {
  if (configured !== undefined) return configured;
  // `require` and not `import`: see netlink/libc.ts.
  const koffi: Koffi = createRequire(import.meta.url)("koffi");
  koffi.config({ async_stack_size: STACK_BYTES });
  configured = koffi;
  return koffi;
}

/** Loads from the system folder only, never from the program's or the working folder. @throws Error if the library is missing. */
export function systemLibrary(name: string): Library {
  return windowsKoffi().load(`${process.env.SystemRoot ?? "C:\\Windows"}\\System32\\${name}`);
}
