/** What an iptables of some version can do: reference iptables.md §10.1. Pure. */

/** `1.8.9` as `[1, 8, 9]`. */
export type IptablesVersion = readonly number[];

export interface IptablesCapabilities {
  /** The rule command has `-C`; without it, rules are looked up in the text of the save command. */
  readonly hasCheck: boolean;
  /** Put before every rule command, so that it waits for the xtables lock. */
  readonly waitArgs: readonly string[];
  /** The same for the restore command; undefined when that knows no wait flag and the caller must take the locks. */
  readonly restoreWaitArgs: readonly string[] | undefined;
  readonly hasRandomFully: boolean;
  /** Which part of the kernel the tool speaks to. */
  readonly backEnd: "legacy" | "nft";
}

/** Seconds that a command waits for the xtables lock. */
const WAIT = ["-w", "5"];

/** What remains when the version cannot be found out: nothing is assumed, commands may simply fail. */
export const NO_CAPABILITIES: IptablesCapabilities = {
  hasCheck: false,
  waitArgs: [],
  restoreWaitArgs: undefined,
  hasRandomFully: false,
  backEnd: "legacy",
};

/** Finds the version in the output of `--version`: `iptables v1.8.9 (nf_tables)`. Pure. */
export function parseVersion(output: string): IptablesVersion | undefined {
  const text = /v([0-9]+(?:\.[0-9]+)+)/.exec(output)?.[1];
  return text?.split(".").map(Number);
}

function isAtLeast(version: IptablesVersion, ...wanted: readonly number[]): boolean {
  for (let i = 0; i < wanted.length; i += 1) {
    const difference = (version[i] ?? 0) - (wanted[i] ?? 0);
    if (difference !== 0) return difference > 0;
  }
  return true;
}

/** The back end that the output of `--version` names; versions before 1.8 have only one and name none. Pure. */
export function backEndOf(output: string): IptablesCapabilities["backEnd"] {
  return output.includes("(nf_tables)") ? "nft" : "legacy";
}

/**
 * Capabilities of a version.
 * @param restoreHasVersion whether the restore command answers `--version`: before 1.6.2 the sign that it knows `-w`.
 */
export function capabilitiesOf(
  version: IptablesVersion,
  restoreHasVersion: boolean,
  backEnd: IptablesCapabilities["backEnd"] = "legacy",
): IptablesCapabilities {
  const waitArgs = isAtLeast(version, 1, 4, 22) ? WAIT : isAtLeast(version, 1, 4, 20) ? ["-w"] : [];
  const isModern = needsNoRestoreProbe(version);
  return {
    hasCheck: isAtLeast(version, 1, 4, 11),
    waitArgs,
    restoreWaitArgs: isModern ? WAIT : restoreHasVersion ? ["-w"] : undefined,
    hasRandomFully: isModern,
    backEnd,
  };
}

/** Whether the version alone tells how the restore command waits. Pure. */
export function needsNoRestoreProbe(version: IptablesVersion): boolean {
  return isAtLeast(version, 1, 6, 2);
}
