/** The errors of HCN: codes, messages and what they mean for the caller. Reference windows-hcn.md §4.3. */

/**
 * How to handle an error: `absent`: there is no such object; `taken`: another object is in the way; `unsupported`: this Windows
 * lacks the call; `denied`: this process has no permission; `refused`: the document is wrong, and a retry does not help; `down`:
 * HNS does not answer or was restarted; `transient`: a retry may help.
 */
export type HcnErrorClass = "absent" | "taken" | "unsupported" | "denied" | "refused" | "down" | "transient";

interface Meaning {
  readonly words: string;
  readonly class: HcnErrorClass;
}

/** By {@link HcnError.code}. */
const MEANINGS: ReadonlyMap<number, Meaning> = new Map([
  [0x5, { words: "Access is denied: run as Administrator or as a HostProcess container", class: "denied" }],
  [0xe, { words: "Not enough memory, or no free port in the dynamic port range", class: "transient" }],
  [0x1f, { words: "A device attached to the system is not functioning", class: "transient" }],
  [0x57, { words: "The parameter is incorrect: perhaps too many endpoints for this Windows", class: "refused" }],
  [0xb7, { words: "Cannot create a file when that file already exists", class: "taken" }],
  [0x490, { words: "Element not found", class: "absent" }],
  [0x6ba, { words: "The HNS service does not answer (RPC server is unavailable)", class: "down" }],
  [0x6be, { words: "The call to the HNS service failed (RPC)", class: "down" }],
  [0x6bf, { words: "The call to the HNS service failed and did not execute (RPC)", class: "down" }],
  [0x8000_4001, { words: "Not implemented by this Windows", class: "unsupported" }],
  [0x803b_0001, { words: "The network was not found", class: "absent" }],
  [0x803b_0002, { words: "The endpoint was not found", class: "absent" }],
  [0x803b_0005, { words: "The address is in no subnet of the network", class: "refused" }],
  [0x803b_0007, { words: "The switch port was not found", class: "transient" }],
  [0x803b_0008, { words: "The policy was not found", class: "absent" }],
  [0x803b_000c, { words: "The network is invalid", class: "refused" }],
  [0x803b_000d, { words: "The policy is invalid", class: "refused" }],
  [0x803b_000e, { words: "The request is invalid", class: "refused" }],
  [0x803b_000f, { words: "The operation is not valid for a remote endpoint", class: "refused" }],
  [0x803b_0012, { words: "The policy already exists", class: "taken" }],
  [0x803b_0013, { words: "The specified port already exists", class: "taken" }],
  [0x803b_0015, { words: "The request is not supported", class: "unsupported" }],
  [0x803b_0019, { words: "The text is not a GUID", class: "refused" }],
  [0x803b_001b, { words: "The JSON document is invalid", class: "refused" }],
  [0x803b_001c, { words: "The JSON document lacks a reference", class: "refused" }],
  [0x803b_001e, { words: "The IP address is invalid", class: "refused" }],
  [0x803b_0020, { words: "The HNS service is stopping", class: "down" }],
  [0x803b_002c, { words: "The object is still in use", class: "transient" }],
  [0x803b_002d, { words: "The internal port is invalid", class: "refused" }],
  [0x803b_002f, { words: "The address is invalid or reserved on the network", class: "refused" }],
  [0x803b_0031, { words: "The HNS service was restarted in the meantime", class: "down" }],
]);

/** ERROR_GEN_FAILURE: the call succeeded, but returned an error record. */
export const GENERAL_FAILURE = 0x1f;

/** A failed call. */
export class HcnError extends Error {
  override readonly name = "HcnError";
  /** The Win32 code if there is one, otherwise the whole HRESULT, unsigned. */
  readonly code: number;

  /**
   * @param call the exported name: `HcnCreateLoadBalancer`.
   * @param hresult as returned, signed or unsigned.
   * @param record the JSON that HCN returned, or an empty string.
   */
  constructor(call: string, hresult: number, record: string) {
    const code = win32Code(hresult);
    const { words } = meaningOf(code);
    const shown = record === "" ? "" : ` ${record}`;
    super(`${call} failed: ${words} (0x${code.toString(16)})${shown}`);
    this.code = code;
  }

  get class(): HcnErrorClass {
    return meaningOf(this.code).class;
  }
}

/** The class of an error; undefined if it is not an HcnError. */
export function hcnErrorClass(error: unknown): HcnErrorClass | undefined {
  return error instanceof HcnError ? error.class : undefined;
}

function meaningOf(code: number): Meaning {
  return MEANINGS.get(code) ?? { words: "An error of Windows", class: "transient" };
}

const FACILITY_MASK = 0x1fff_0000;
const FACILITY_WIN32 = 0x0007_0000;

function win32Code(hresult: number): number {
  const unsigned = hresult >>> 0;
  return (unsigned & FACILITY_MASK) === FACILITY_WIN32 ? unsigned & 0xffff : unsigned;
}
