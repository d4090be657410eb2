/** Which endpoints are left out because they do not answer: a policy without input, output or a clock of its own. */
import { type ProbeOutcome, SUSPICION_MS, WatchedEndpoint } from "./watched-endpoint.ts";

export type { ProbeOutcome };

/** One endpoint as evidence names it: `Endpoint.text`. TCP only. */
export type EndpointText = string;

/** What was seen since the last read. */
export type Evidence =
  /** SYNs that clients sent again without an answer, or ICMP errors of this node; `source` is the client's bucket. */
  | { readonly kind: "unanswered"; readonly endpoint: EndpointText; readonly source: string; readonly count: number }
  /** A client was answered: a packet from the endpoint's side, in the reply direction. */
  | { readonly kind: "answered"; readonly endpoint: EndpointText };

/** A service port that asked, with the endpoints that get new connections. */
export interface WatchedPort {
  readonly key: string;
  readonly members: readonly {
    readonly endpoint: EndpointText;
    /** Absent if the slice names none. */
    readonly nodeName: string | undefined;
    readonly isLocal: boolean;
  }[];
}

export interface LeaveBounds {
  /** The largest share of a service port's endpoints that is left out; two thirds of it where there are more than ten. */
  readonly mostLeft: number;
  /** The largest share of the other nodes that may be silent: if more are, it is this node. */
  readonly mostSilentNodes: number;
  /** How long an endpoint is left out at first; twice as long with each relapse. */
  readonly backOffMs: number;
  readonly longestBackOffMs: number;
}

export interface LeaveChange {
  /** `wrong`: back, as it answered within a second. `forgotten`: no longer asked for, or its slices changed: it may be gone. */
  readonly kind: "left" | "back" | "wrong" | "forgotten";
  /** The service port's. */
  readonly key: string;
  readonly endpoint: EndpointText;
  /** For people: `14 repeated SYNs were not answered`. */
  readonly reason: string;
}

export interface LeaveDecision {
  readonly changes: readonly LeaveChange[];
  /** To connect to now, each as often as it is named here. Every outcome comes back by `probed`. */
  readonly probes: readonly EndpointText[];
  /** For whom answers must be watched. */
  readonly suspects: ReadonlySet<EndpointText>;
  /** Why not all who are silent are left out; constant while the cause lasts. */
  readonly held: readonly string[];
}

type LeftByPort = ReadonlyMap<string, ReadonlySet<EndpointText>>;

const FEW_ENDPOINTS = 10;
const WRONG_MS = 1_000;
/** Own connections that begin at once. */
const MOST_PROBES = 200;
const OWN_SILENCE = "so many other nodes are silent that it is this node";

/** Learns what the kernel saw and what own connections met, and decides who is left out. */
export class LeavePolicy {
  readonly #bounds: LeaveBounds;
  #ports = new Map<string, WatchedPort>();
  #endpoints = new Map<EndpointText, WatchedEndpoint>();
  /** The others cost nothing. */
  #active = new Map<EndpointText, WatchedEndpoint>();
  /** Other nodes that do not answer. */
  #silentNodes: ReadonlySet<string> = new Set();
  #ownSilenceUntilMs = Number.NEGATIVE_INFINITY;
  /** Whether so many are silent, at least to one client, that no more endpoints are left out. */
  #isDoubtful = false;
  #left = new Map<string, Set<EndpointText>>();
  /** Why an endpoint is back, until the next decision. */
  readonly #back = new Map<EndpointText, Pick<LeaveChange, "kind" | "reason">>();

  constructor(bounds: LeaveBounds) {
    this.#bounds = bounds;
  }

  /** The service ports that asked; all is forgotten of one whose endpoints changed. */
  watch(ports: readonly WatchedPort[]): void {
    const changed = ports.filter((port) => !isSame(port, this.#ports.get(port.key)));
    if (changed.length === 0 && ports.length === this.#ports.size) return;
    const forgotten = new Set(changed.flatMap(({ members }) => members.map(({ endpoint }) => endpoint)));
    this.#ports = new Map(ports.map((port) => [port.key, port]));
    const before = this.#endpoints;
    this.#endpoints = new Map();
    for (const { endpoint, nodeName, isLocal } of ports.flatMap(({ members }) => members)) {
      if (this.#endpoints.has(endpoint)) continue;
      const known = before.get(endpoint);
      const node = nodeName ?? endpoint.slice(0, endpoint.lastIndexOf(":"));
      const isKept = known !== undefined && !forgotten.has(endpoint);
      this.#endpoints.set(endpoint, isKept ? known : new WatchedEndpoint(node, isLocal, known?.hasAnsweredProbe));
    }
    this.#active = new Map(this.#endpoints);
  }

  /** What one read found, which covers the time since the one before. */
  see(evidence: readonly Evidence[], nowMs: number): void {
    const answered = new Set(evidence.filter(({ kind }) => kind === "answered").map(({ endpoint }) => endpoint));
    for (const endpoint of answered) this.#answered(endpoint, nowMs);
    for (const seen of evidence) {
      const watched = this.#endpoints.get(seen.endpoint);
      if (seen.kind === "answered" || watched === undefined || answered.has(seen.endpoint)) continue;
      watched.unanswered(seen.source, seen.count, nowMs);
      this.#active.set(seen.endpoint, watched);
    }
    for (const watched of this.#active.values()) watched.judge(nowMs);
    this.#lookAtNodes(nowMs);
  }

  /** How one of the asked connections ended. */
  probed(endpoint: EndpointText, outcome: ProbeOutcome, nowMs: number): void {
    this.#endpoints.get(endpoint)?.probed(outcome);
    if (outcome === "answered") this.#answered(endpoint, nowMs);
  }

  /** After each read. */
  decide(nowMs: number): LeaveDecision {
    const before = this.#left;
    this.#takeBack(nowMs);
    const held = this.#leave(nowMs);
    const suspects = this.#suspects(nowMs);
    const probes = this.#probes(nowMs);
    const left = pairsBeyond(this.#left, before).map(({ key, endpoint }): LeaveChange => {
      return { kind: "left", key, endpoint, reason: this.#endpoints.get(endpoint)?.reason ?? "" };
    });
    const back = pairsBeyond(before, this.#left).map(({ key, endpoint }): LeaveChange => {
      const why = this.#back.get(endpoint) ?? { kind: "forgotten", reason: "its Service or its slices changed" };
      return { ...why, key, endpoint };
    });
    this.#back.clear();
    return { changes: [...left, ...back], probes, suspects, held };
  }

  #answered(endpoint: EndpointText, nowMs: number): void {
    const watched = this.#endpoints.get(endpoint);
    watched?.answered(nowMs);
    if (watched?.leftMs === undefined || nowMs - watched.leftMs > WRONG_MS) return;
    watched.comeBack(nowMs);
    this.#back.set(endpoint, { kind: "wrong", reason: "it answered within a second" });
  }

  /** A node is silent if an endpoint is, or was to one client, and no other one of it was answered since. */
  #lookAtNodes(nowMs: number): void {
    const unheard = [...this.#active.values()].filter((one) => !one.isLocal && one.isUnheard(nowMs));
    const lastAnswers = new Map<string, number>();
    for (const { isLocal, node, lastAnswerMs } of unheard.length === 0 ? [] : this.#endpoints.values()) {
      if (!isLocal) lastAnswers.set(node, Math.max(lastAnswerMs, lastAnswers.get(node) ?? lastAnswerMs));
    }
    const isAlive = ({ node, silentFromMs }: WatchedEndpoint) =>
      (lastAnswers.get(node) ?? nowMs) > Math.max(silentFromMs, nowMs - SUSPICION_MS);
    const silent = unheard.filter((one) => !isAlive(one));
    const areTooMany = ({ size }: ReadonlySet<string>) =>
      size > 1 && size > lastAnswers.size * this.#bounds.mostSilentNodes;
    this.#silentNodes = new Set(silent.map(({ node }) => node));
    this.#isDoubtful = areTooMany(this.#silentNodes);
    const judged = silent.filter(({ judgedMs }) => judgedMs !== undefined);
    if (areTooMany(new Set(judged.map(({ node }) => node)))) this.#ownSilenceUntilMs = nowMs + SUSPICION_MS;
  }

  /** Half open: one endpoint of a service port after the other. */
  #takeBack(nowMs: number): void {
    const isOwn = nowMs < this.#ownSilenceUntilMs;
    for (const [endpoint, watched] of this.#active) {
      const isDue = isOwn || (watched.mayComeBack(nowMs) && !this.#hasTrial(endpoint, nowMs));
      if (watched.leftMs === undefined || !isDue) continue;
      watched.comeBack(nowMs);
      const reason = watched.hasAnsweredProbe ? "it answers again" : "to see whether it answers again";
      this.#back.set(endpoint, { kind: "back", reason: isOwn ? OWN_SILENCE : reason });
    }
  }

  #hasTrial(endpoint: EndpointText, nowMs: number): boolean {
    return this.#portsOf(new Set([endpoint])).some(({ members }) =>
      members.some((member) => this.#endpoints.get(member.endpoint)?.isOnTrial(nowMs)),
    );
  }

  #portsOf(endpoints: ReadonlySet<EndpointText>): readonly WatchedPort[] {
    return [...this.#ports.values()].filter(({ members }) => members.some(({ endpoint }) => endpoints.has(endpoint)));
  }

  /** @returns why not all who are silent are left out. */
  #leave(nowMs: number): string[] {
    const isOwn = nowMs < this.#ownSilenceUntilMs;
    const held: string[] = [];
    const judged = new Map([...this.#active].filter(([, { judgedMs }]) => judgedMs !== undefined));
    // Who is left out already has its place.
    const time = ({ leftMs, judgedMs }: WatchedEndpoint) => leftMs ?? nowMs + (judgedMs ?? 0);
    const inTurn = new Map([...judged].sort(([, one], [, other]) => time(one) - time(other)));
    this.#left = new Map();
    for (const { key, members } of judged.size === 0 ? [] : this.#portsOf(new Set(judged.keys()))) {
      const own = new Set(members.map(({ endpoint }) => endpoint));
      const silent = [...inTurn].filter(([endpoint]) => own.has(endpoint));
      const most = isOwn ? 0 : mostLeft(own.size, this.#bounds.mostLeft);
      const mayLeave = ({ leftMs, dueMs }: WatchedEndpoint) =>
        leftMs !== undefined || (!this.#isDoubtful && nowMs >= dueMs);
      const chosen = silent.filter(([, one]) => mayLeave(one)).slice(0, most);
      if (chosen.length > 0) this.#left.set(key, new Set(chosen.map(([endpoint]) => endpoint)));
      for (const [, watched] of chosen) {
        if (watched.leftMs === undefined) watched.leave(nowMs, this.#bounds.backOffMs, this.#bounds.longestBackOffMs);
      }
      const isHeld = silent.length > most || (this.#isDoubtful && silent.length > chosen.length);
      const why =
        isOwn || this.#isDoubtful
          ? OWN_SILENCE
          : `at most ${most} of ${own.size} endpoints are left out, and more are silent`;
      if (isHeld) held.push(`${key}: ${why}`);
    }
    return held;
  }

  /** Also who shares a silent node: an answer says that the node is alive. */
  #suspects(nowMs: number): Set<EndpointText> {
    const suspects = new Set<EndpointText>();
    for (const [endpoint, watched] of this.#active) {
      if (watched.isSuspect(nowMs)) suspects.add(endpoint);
      else if (!watched.isUntried) this.#active.delete(endpoint);
    }
    for (const [endpoint, { node }] of this.#silentNodes.size === 0 ? [] : this.#endpoints) {
      if (this.#silentNodes.has(node)) suspects.add(endpoint);
    }
    return suspects;
  }

  #probes(nowMs: number): EndpointText[] {
    const probes: EndpointText[] = [];
    for (const [endpoint, watched] of this.#active) {
      if (probes.length >= MOST_PROBES) break;
      for (let left = watched.beginProbes(nowMs); left > 0; left--) probes.push(endpoint);
    }
    return probes;
  }
}

/** The most of so many endpoints that are left out; never the last. */
function mostLeft(count: number, share: number): number {
  return Math.max(0, Math.min(count - 1, Math.floor(count > FEW_ENDPOINTS ? (count * share * 2) / 3 : count * share)));
}

function isSame({ members }: WatchedPort, other: WatchedPort | undefined): boolean {
  const isSameMember = ({ endpoint, nodeName }: WatchedPort["members"][number], index: number) =>
    endpoint === other?.members[index]?.endpoint && nodeName === other.members[index].nodeName;
  return members.length === other?.members.length && members.every(isSameMember);
}

/** What `one` has and `other` has not. */
function pairsBeyond(one: LeftByPort, other: LeftByPort): { key: string; endpoint: EndpointText }[] {
  return [...one].flatMap(([key, endpoints]) =>
    [...endpoints.difference(other.get(key) ?? new Set())].map((endpoint) => ({ key, endpoint })),
  );
}
