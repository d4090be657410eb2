/** Journal records in words, for the page and for `kube-proxy monitor`. Not yet escaped for a terminal or a page. */
import type { SyncCause, SyncRecord } from "../sync/journal/sync-record.ts";

const CHANGES = { add: "added", update: "updated", delete: "deleted" } as const;
const WHOLE: Readonly<Record<string, string>> = {
  start: "the first sync",
  retry: "what failed before is tried again",
  periodic: "the periodic look at everything",
  zone: "the node is in another zone",
  "node-addresses": "a node has other addresses",
  "service-cidrs": "the ServiceCIDRs have changed",
  "left-endpoints": "endpoints that do not answer are left out, or are back",
  requested: "a sync was asked for",
};

/** Why a sync ran, around the name of what changed. */
export interface CauseWords {
  readonly before: string;
  /** `namespace/name`; empty if it was not an object. */
  readonly object: string;
  /** The object's own or owning Service, `namespace/name`; empty if unknown. */
  readonly service: string;
  readonly after: string;
}

/** One cause. An unknown kind, from a daemon of another version, is shown as it is. */
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
