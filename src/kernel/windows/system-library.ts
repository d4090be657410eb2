/** The libraries of Windows, which koffi opens. Nothing is loaded before. */
import { createRequire } from "node:module";

export type Koffi = typeof import("koffi");
export type Library = ReturnType<Koffi["load"]>;

/** Of a call on a worker thread, as threads of Windows have it: RPC clients need more than the 128 KiB that koffi gives. */
const STACK_BYTES = 1 << 20;

let configured: Koffi | undefined;

/** koffi, with what can be set before it opens the first library only. */
export function windowsKoffi(): Koffi {
  if (configured !== undefined) return configured;
  // `require` and not `import`: see netlink/libc.ts.
  const koffi: Koffi = createRequire(import.meta.url)("koffi");
  koffi.config({ async_stack_size: STACK_BYTES });
  configured = koffi;
  return koffi;
}

/** From the system's folder only: what lies in the program's or the working folder must not be taken for it. @throws Error where it lacks. */
export function systemLibrary(name: string): Library {
  return windowsKoffi().load(`${process.env.SystemRoot ?? "C:\\Windows"}\\System32\\${name}`);
}
