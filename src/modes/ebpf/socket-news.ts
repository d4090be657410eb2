/** Log messages of the socket path, logged once per condition: a failure costs speed, not service. */
import type { Logger } from "../../logging/logger.ts";
import { messageOf } from "../../logging/message-of.ts";
import { someOf } from "../../logging/some-of.ts";
import type { SocketMaps } from "./socket-maps.ts";
import type { SocketPins } from "./socket-pins.ts";

/** Logged once for each reason. */
export const NOT_KEPT = "Nothing is decided at the socket while this process is away";

/** Logged if names of an earlier process cannot be removed. */
export const STUCK = "Programs that decide at the socket could not be removed and may lead to endpoints that are gone";

/** Logged at the end of a mode or of a version, if sockets cannot be told that nothing looks after them any more. */
export const UNTOLD = "Could not disconnect UDP sockets: they keep their endpoint also when it is gone";

/** Logged, and part of `status` while it lasts. */
export const KNOWN_ADDRESSES = "The node's addresses cannot be read; the last known ones stay in use at the socket";

/** What this mode adds to the packet path, as named by status and page where it is unavailable. */
export const AT_SOCKET = "connections decided at the socket";

/** Conditions that are reported again only when they change. */
type Subject = "all" | "addresses" | "connected UDP" | "pods" | "service ports" | "pins" | "refusals";

/** Logged once, and part of `status`: clients notice only that the rules reject them. */
const NOT_REFUSED = "Services without endpoints take the rules, because this kernel is older than 5.18";

/** When something begins to use the rules, and when that ends. */
const LIMITS = {
  "connected UDP": ["Connected UDP takes the rules", "Connected UDP is decided at the socket now"],
  pods: ["Pods take the rules", "Connections of pods are decided at the socket now"],
} as const;

export class SocketNews {
  readonly #log: Logger;
  readonly #said = new Map<Subject, string>();

  constructor(log: Logger) {
    this.#log = log;
  }

  /** Empty if all is well. */
  last(subject: Subject): string {
    return this.#said.get(subject) ?? "";
  }

  forget(subject: Subject): void {
    this.#said.delete(subject);
  }

  /** @param text empty if all is well. */
  isNews(subject: Subject, text: string): boolean {
    if (text === this.last(subject)) return false;
    this.#said.set(subject, text);
    return true;
  }

  /** Logs why these take the rules, and when that ends. @param why empty if they do not. */
  tellLimit(subject: keyof typeof LIMITS, why: string): void {
    if (!this.isNews(subject, why)) return;
    const [begins, ends] = LIMITS[subject];
    const what = `${AT_SOCKET} for ${subject}`;
    if (why === "") this.#log.info(ends, { can: what });
    else this.#log.warn(`${begins}: ${why}`, { cannot: what, why });
  }

  /** Call before service ports are written. @returns what to call afterwards: logs those that have changed, at -v 9. */
  noteWrites(maps: Pick<SocketMaps, "linesOf">, keys: () => Iterable<string>): () => void {
    if (!this.#log.isVerbose(9)) return () => {};
    const before = new Map(Array.from(keys(), (key) => [key, maps.linesOf(key).join("\n")]));
    return () => {
      for (const [servicePort, lines] of before) {
        const frontends = maps.linesOf(servicePort);
        if (frontends.join("\n") !== lines) this.#log.v(9, "Writing eBPF maps", { servicePort, frontends });
      }
    };
  }

  /** Logs why the rules decide everything. */
  tellOff(error: unknown): void {
    if (!this.isNews("all", messageOf(error))) return;
    this.#log.error("Nothing is decided at the socket; the nftables rules handle all packets", error, {
      cannot: AT_SOCKET,
    });
  }

  tellOn(cgroup: string): void {
    this.forget("all");
    this.#log.info("Connections to services are decided at the socket", { can: AT_SOCKET, cgroup });
  }

  /** @param canRefuse whether programs can refuse a connection. */
  tellWhoRefuses(canRefuse: boolean): void {
    if (this.isNews("refusals", canRefuse ? "" : NOT_REFUSED)) this.#log.info(NOT_REFUSED);
  }

  tellRefusals(refused: ReadonlyMap<string, string>): void {
    const names = [...refused.keys()].sort();
    if (!this.isNews("service ports", names.join(", "))) return;
    const what = `${AT_SOCKET} for some service ports`;
    if (names.length === 0) {
      this.#log.info("All service ports are decided at the socket again", { can: what });
      return;
    }
    const [reason = ""] = refused.values();
    this.#log.error("Some service ports are not decided at the socket", new Error(reason), {
      names: someOf(names),
      cannot: what,
    });
  }

  /** @returns whether there is any. */
  tellDamage(servicePorts: number): boolean {
    if (servicePorts > 0) this.#log.warn("Another program has changed the maps: repairing", { servicePorts });
    return servicePorts > 0;
  }

  tellOrphaned(wereDetached: boolean, cgroup: string): void {
    const cause = wereDetached ? "Another program has detached those" : "The cgroup is gone, and with it the programs";
    this.#log.error(`${cause} that decided at the socket`, undefined, { cgroup });
  }

  tellPinProblem(pins: Pick<SocketPins, "problem"> | undefined): void {
    const problem = pins?.problem;
    const isNews = this.isNews("pins", problem === undefined ? "" : messageOf(problem));
    if (isNews && problem !== undefined) this.#log.error(NOT_KEPT, problem);
  }
}
