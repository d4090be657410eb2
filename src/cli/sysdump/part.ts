/** One part of a support archive. */
export interface SysdumpPart {
  /** Its path in the archive. */
  readonly name: string;
  /** @returns its text; an empty one is left out. @throws PartError for what cannot be read, with the reason */
  read(): Promise<string>;
}

/** Why a part is not in the archive. */
export class PartError extends Error {
  override readonly name = "PartError";
}
