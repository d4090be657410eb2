/** Records of the journal in words: for the page, and for `kube-proxy monitor`. Not yet safe for a terminal or a page. Pure. */
import type { SyncCause, SyncRecord } from "../sync/journal/sync-record.ts";

const CHANGES = { add: "added", update: "updated", delete: "deleted" } as const;
const WHOLE: Readonly<Record<string, string>> = {
  start: "the first sync",
  retry: "what failed before is tried again",
  periodic: "the periodic look at everything",
  zone: "the node is in another zone",
  "node-addresses": "the node has other addresses",
  "service-cidrs": "the ServiceCIDRs have changed",
  requested: "a sync was asked for",
};

/** Why a sync ran, around the name of what changed. */
export interface CauseWords {
  readonly before: string;
  /** `namespace/name`; empty where it was no object. */
  readonly object: string;
  /** The Service that it is or belongs to, `namespace/name`; empty where that is not known. */
  readonly service: string;
  readonly after: string;
}

/** One cause. A kind that is not known, of a daemon of another version, stands for itself. */
export function causeWords(cause: SyncCause): CauseWords {
  switch (cause.kind) {
    case "object": {
      const { object, change, namespace, name, service } = cause;
      const of = service === name || service === "" ? "" : ` of ${namespace}/${service}`;
      return {
        before: `${object} `,
        object: `${namespace}/${name}`,
        service: service === "" ? "" : `${namespace}/${service}`,
        after: `${of} ${CHANGES[change]}`,
      };
    }
    case "repair": {
      const what = cause.servicePorts === null ? "our rules" : `rules of ${countedPorts(cause.servicePorts)}`;
      return sentence(`${what} destroyed by ${cause.by ?? "another program"}`);
    }
    default:
      return sentence(WHOLE[cause.kind] ?? cause.kind);
  }
}

const sentence = (before: string): CauseWords => ({ before, object: "", service: "", after: "" });

/** What a sync changed and wrote. */
export function writtenWords({ written, servicePorts }: SyncRecord): string {
  const things = Object.entries(written ?? {}).filter(([, count]) => count > 0);
  const changed = `${countedPorts(servicePorts)} changed`;
  if (written === null) return changed;
  if (things.length === 0) return `${changed}, nothing to write`;
  return `${changed}, wrote ${things.map(([what, count]) => `${what} ×${count}`).join(", ")}`;
}

const countedPorts = (count: number): string => `${count} service port${count === 1 ? "" : "s"}`;
