/** What is said of the socket path, once while it lasts: it costs speed and no service. */
import type { DisconnectReach } from "../../kernel/sock-diag/disconnect-udp.ts";
import type { Logger } from "../../logging/logger.ts";
import { messageOf } from "../../logging/message-of.ts";
import { someOf } from "../../logging/some-of.ts";
import type { SocketPins } from "./socket-pins.ts";

/** Logged once for each reason. */
export const NOT_KEPT = "Nothing is decided at the socket while this process is away";

/** Logged when names of an earlier process cannot be taken away. */
export const STUCK = "What decides at the socket cannot be removed, and may lead to endpoints that are gone";

/** Logged, and part of what `status` says, while it is so. */
export const KNOWN_ADDRESSES =
  "The addresses of the node cannot be read; at the socket, those that are known stay in use";

/** What this mode does beside the packet path, as status and page name it where it cannot be done. */
export const AT_SOCKET = "connections decided at the socket";

/** What is said again only when it changes. */
type Subject = "all" | "addresses" | "connected UDP" | "service ports" | "pins" | "refusals";

/** Logged once, and part of what `status` says: clients notice no more than that a refusal is the rules'. */
export const NOT_REFUSED = "Services without endpoints take the rules, because this kernel is older than 5.18";

/** Whose connected UDP takes the rules, in words. */
const OF = { host: " of pods", none: "" } as const;

export class SocketNews {
  readonly #log: Logger;
  readonly #said = new Map<Subject, string>();

  constructor(log: Logger) {
    this.#log = log;
  }

  /** Empty when all is well. */
  last(subject: Subject): string {
    return this.#said.get(subject) ?? "";
  }

  forget(subject: Subject): void {
    this.#said.delete(subject);
  }

  /** @param text empty when all is well. */
  isNews(subject: Subject, text: string): boolean {
    if (text === this.last(subject)) return false;
    this.#said.set(subject, text);
    return true;
  }

  /** What keeps connected UDP sockets from being told that their endpoint is gone, and that it does so no more. */
  tellReach(before: DisconnectReach["of"], reach: DisconnectReach): void {
    const why = reach.of === "all" ? "" : reach.why;
    if (!this.isNews("connected UDP", why)) return;
    if (before !== "all" && before !== reach.of) {
      this.#log.info(`Connected UDP${reach.of === "host" ? " of the host" : ""} is decided at the socket now`, {
        can: `${AT_SOCKET} for connected UDP${OF[before]}`,
      });
    }
    if (reach.of === "all") return;
    const cannot = `${AT_SOCKET} for connected UDP${OF[reach.of]}`;
    this.#log.warn(`Connected UDP${OF[reach.of]} takes the rules: ${why}`, { cannot, why });
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
    this.#log.error("Service ports that are not decided at the socket", new Error(reason), {
      names: someOf(names),
      cannot: what,
    });
  }

  tellPinProblem(pins: Pick<SocketPins, "problem"> | undefined): void {
    const problem = pins?.problem;
    const isNews = this.isNews("pins", problem === undefined ? "" : messageOf(problem));
    if (isNews && problem !== undefined) this.#log.error(NOT_KEPT, problem);
  }
}
