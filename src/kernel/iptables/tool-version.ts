/** What `iptables --version` tells: reference iptables-operation.md §10.1. Pure. */

/** Which part of the kernel the tool speaks to. */
export type IptablesBackEnd = "legacy" | "nft";

/**
 * The oldest iptables that is used: its restore command takes the xtables lock itself, and it knows `--random-fully`. Every
 * system that runs this program's Node.js has 1.8.
 */
const OLDEST = [1, 6, 2] as const;

/** The version in the output, as it is written: `1.8.9`; undefined when there is none. */
export function versionIn(output: string): string | undefined {
  return /v([0-9]+(?:\.[0-9]+)+)/.exec(output)?.[1];
}

/** Why a version cannot be used, and what to do; undefined when it can. */
export function versionProblem(command: string, version: string): string | undefined {
  const parts = version.split(".").map(Number);
  for (const [index, wanted] of OLDEST.entries()) {
    const part = parts[index] ?? 0;
    if (part > wanted) return undefined;
    if (part < wanted) return `${command} ${version} is too old: install iptables ${OLDEST.join(".")} or newer`;
  }
  return undefined;
}

/** The back end that the output names; versions before 1.8 have only one and name none. */
export function backEndIn(output: string): IptablesBackEnd {
  return output.includes("(nf_tables)") ? "nft" : "legacy";
}
