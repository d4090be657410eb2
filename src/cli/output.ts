import type { Terminal } from "./terminal.ts";

/** Where a command writes. */
export interface Output {
  out(text: string): void;
  err(text: string): void;
  /** What the reader of `out` can show. @default neither colour nor a width */
  readonly terminal?: Terminal;
}
