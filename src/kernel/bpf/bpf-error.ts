/** Failures of bpf(2), with a stable `code`. */

/** The kernel's errno name (`ENOENT`), or one of our codes. */
type BpfErrorCode =
  | `E${string}`
  /** This machine's kernel or processor does not support it. */
  | "unsupported"
  /** The kernel would reject this definition. */
  | "invalid";

export class BpfError extends Error {
  override readonly name = "BpfError";
  readonly code: BpfErrorCode;
  constructor(code: BpfErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

export function hasBpfCode(error: unknown, code: BpfErrorCode): boolean {
  return error instanceof BpfError && error.code === code;
}
