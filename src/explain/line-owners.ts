/** Whose a line of a dump is: by the names, the addresses and the comments in it. Pure. */
import type { Difference } from "../inspect/dumps/compare.ts";
import { declaredFrontends } from "../model/frontend.ts";
import type { ExplainedCluster } from "./explained-cluster.ts";

/** A chain or set that the iptables or nftables mode gives to one service port alone. */
const OWN_NAME =
  /\b(?:KUBE-(?:SVC|SVL|SEP|FW|EXT)-[A-Z2-7]{16}|(?:service|local|external|firewall|endpoint|affinity)-[A-Z2-7]{8}-[^\s,}]+)/g;
const COMMENT = /"([a-z0-9.-]+\/[a-z0-9.-]+(?::[a-z0-9-]+)?)[" ]/;
const BARE_COMMENT = /--comment ([a-z0-9.-]+\/[a-z0-9.-]+(?::[a-z0-9-]+)?)(?: |$)/;

export class LineOwners {
  readonly #names = new Map<string, string>();
  /** By address, protocol and port, and by address alone. */
  readonly #places = new Map<string, Set<string>>();

  constructor({ families }: ExplainedCluster) {
    for (const { inspection, node } of families) {
      for (const [key, port] of node.state.services) {
        const { text } = port.name;
        const endpoints = node.state.endpoints.get(key) ?? [];
        for (const { name } of inspection.namesOf(port, endpoints)) this.#names.set(name, text);
        for (const { address = "", port: number } of declaredFrontends(port)) {
          this.#note(placeText(address, port.protocol, number), text);
          if (address !== "") this.#note(address, text);
        }
        for (const { ip, port: number } of endpoints) this.#note(placeText(ip, port.protocol, number), text);
      }
    }
  }

  #note(place: string, owner: string): void {
    const known = this.#places.get(place);
    if (known === undefined) this.#places.set(place, new Set([owner]));
    else known.add(owner);
  }

  /** The service ports that a difference is about, as `namespace/name:port`. */
  ownersOf({ name, missing, extra }: Difference): readonly string[] {
    const own = this.#names.get(name);
    if (own !== undefined) return [own];
    const owners = new Set([name, ...missing, ...extra].flatMap((line) => [...this.#ownersOfLine(line)]));
    if (owners.size === 0) {
      // A chain of a service port that is gone: in nftables mode its name says whose it was.
      const [, text] = /^\w+-[A-Z2-7]{8}-([^/]+\/[^/]+\/[^/]+\/[^_]*)/.exec(name) ?? [];
      if (text !== undefined) owners.add(text);
    }
    return [...owners].sort();
  }

  #ownersOfLine(line: string): Iterable<string> {
    for (const [name] of line.matchAll(OWN_NAME)) {
      const owner = this.#names.get(name);
      if (owner !== undefined) return [owner];
    }
    const [, said] = COMMENT.exec(line) ?? BARE_COMMENT.exec(line) ?? [];
    if (said !== undefined) return [said];
    const place = placeOfEntry(line) ?? placeOfServer(line);
    // A virtual server at a node's address is there for a node port.
    return this.#places.get(place ?? line) ?? this.#places.get(place?.replace(/^\S+/, "") ?? "") ?? [];
  }
}

function placeText(address: string, protocol: string, port: number | string): string {
  return `${address} ${protocol.toUpperCase()} ${port}`;
}

/** `10.96.0.10,tcp:80` of an IP set, `10.96.0.10 . tcp . 80` or `tcp . 30080` of an nftables set. */
function placeOfEntry(line: string): string | undefined {
  const [, address = "", protocol, port = ""] =
    /^([\da-f.:]+)(?:,| \. (?:[\da-f.:]+ \. )?)(tcp|udp|sctp)(?::| \. )(\d+)/.exec(line) ??
    /^()(tcp|udp|sctp) \. (\d+)/.exec(line) ??
    [];
  return protocol === undefined ? undefined : placeText(address, protocol, port);
}

/** `10.96.0.10:80/TCP`, the name of a virtual server. */
function placeOfServer(name: string): string | undefined {
  const [, bracketed, bare = "", port = "", protocol] = /^(?:\[([^\]]+)\]|([\d.]+)):(\d+)\/(\w+)$/.exec(name) ?? [];
  return protocol === undefined ? undefined : placeText(bracketed ?? bare, protocol, port);
}
