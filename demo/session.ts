/**
 * The running demo: cluster, proxy and the latest results. `once.ts` and `live.ts` drive it; this file knows nothing
 * about terminals.
 */
import type { ClusterRecords, NodeRecord } from "../src/model/objects.ts";
import { modeNamed, type ProxyMode } from "../src/modes/registry.ts";
import { type ClusterView, clusterViewOf } from "./cluster-view.ts";
import { DemoNetwork } from "./demo-network.ts";
import { Manifests } from "./manifests.ts";
import { PageDoor } from "./page-door.ts";
import { PlannedAnswers } from "./planned-answers.ts";
import { type PlayedNode, playedNode } from "./played-node.ts";
import { PAGE_PORT, ProxyProcess, type ProxyStart } from "./proxy-process.ts";
import type { Block } from "./results.ts";
import { lostClaims } from "./targets.ts";
import { blocksOf, runPass } from "./verification.ts";

export interface SessionOptions {
  readonly mode: ProxyMode;
  /** For modes with several layouts; absent: the mode's default. */
  readonly layout?: string;
  /** Folder or file. */
  readonly manifests: string;
  /** The Node of the manifests that the proxy runs on; undefined: see {@link playedNode}. */
  readonly hostnameOverride: string | undefined;
}

/** Modes with BPF programs at sockets need a cgroup, so that these see only the demo's clients. */
function needsCgroup(mode: ProxyMode): boolean {
  return Object.hasOwn(modeNamed(mode).config.fields, "cgroupRoot");
}

/** Without pins, nothing outlives the demo. */
const onlyForDemo = (cgroup: string) => ({ cgroupRoot: cgroup, pinFolder: "none" });

/** Always end it with {@link Session.end}. */
export class Session {
  readonly options: SessionOptions;
  readonly network: DemoNetwork;
  readonly proxy: ProxyProcess;
  /** Forwards a browser to the proxy's page. */
  readonly page: PageDoor;
  readonly node: PlayedNode;
  readonly #manifests: Manifests;
  readonly #start: Pick<ProxyStart, "mode" | "chosen">;
  #view: ClusterView;
  /** The Node that the proxy runs on, as it was last: the proxy remembers it after it is gone, as kube-proxy does. */
  #ownNode: NodeRecord | undefined;
  #answers: PlannedAnswers | undefined;
  #problems: readonly string[] = [];
  /** Problems of the manifests. */
  #bad: readonly string[] = [];

  private constructor(
    options: SessionOptions,
    { node, network, proxy, page }: Pick<Session, "node" | "network" | "proxy" | "page">,
    manifests: Manifests,
    start: Pick<ProxyStart, "mode" | "chosen">,
  ) {
    this.#start = start;
    this.options = options;
    this.node = node;
    this.network = network;
    this.proxy = proxy;
    this.page = page;
    this.#manifests = manifests;
    this.#view = clusterViewOf(manifests.cluster());
    this.#ownNode = this.#view.cluster.nodes.find(({ name }) => name === node.name);
  }

  /** Builds everything and starts the proxy. If anything fails, it cleans up and rejects. */
  static async start(options: SessionOptions): Promise<Session> {
    // First, because an unreadable folder is the most common mistake.
    const read = await Manifests.open(options.manifests);
    const node = playedNode(clusterViewOf(read.cluster()), options.hostnameOverride);
    const network = await DemoNetwork.create(node, needsCgroup(options.mode));
    let session: Session | undefined;
    let page: PageDoor | undefined;
    try {
      page = await PageDoor.open(network.nodeNamespace, PAGE_PORT);
      const { mode, layout, manifests } = options;
      const { cgroup } = network;
      const chosen = { ...(layout !== undefined && { layout }), ...(cgroup !== undefined && onlyForDemo(cgroup)) };
      const start = { mode, manifests, nodeName: node.name, chosen };
      const proxy = await ProxyProcess.start(network.nodeNamespace, network.probers.node, start);
      session = new Session(options, { node, network, proxy, page }, read, start);
      await session.reload();
      return session;
    } catch (error) {
      await session?.proxy.stop();
      await page?.close();
      await network.destroy();
      throw error;
    }
  }

  /** Broken manifests and pods that cannot be started, one line each. */
  get problems(): readonly string[] {
    return this.#problems;
  }

  /** Reads the manifests again and starts new pods. @returns whether anything has changed. */
  async reload(): Promise<boolean> {
    let isChanged = this.#answers === undefined;
    let bad: readonly string[];
    try {
      if (await this.#manifests.refresh()) isChanged = true;
      bad = this.#manifests.problems();
    } catch (error) {
      // An editor may be replacing the file: the last read state stays.
      bad = [`${this.options.manifests} cannot be read: ${error instanceof Error ? error.message : error}`];
    }
    if (!isChanged && bad.join() === this.#bad.join()) return false;
    // The proxy's log lines about a fixed problem are outdated too.
    if (bad.length < this.#bad.length) this.proxy.forgetLog();
    this.#bad = bad;
    const [cluster, gone] = this.#withOwnNode(this.#manifests.cluster());
    this.#view = clusterViewOf(cluster);
    this.#answers = await PlannedAnswers.of(this.#view, this.#start, this.node);
    const lost = lostClaims(this.#view, this.node.addresses);
    this.#problems = [...bad, ...gone, ...lost, ...(await this.network.follow(this.#view))];
    return true;
  }

  /** @returns also a problem, if the Node is gone. */
  #withOwnNode(cluster: ClusterRecords): [ClusterRecords, readonly string[]] {
    const now = cluster.nodes.find(({ name }) => name === this.node.name);
    this.#ownNode = now ?? this.#ownNode;
    if (now !== undefined || this.#ownNode === undefined) return [cluster, []];
    const { name } = this.#ownNode;
    const gone = `Node ${name} is gone: the proxy that runs on it goes on with its last zone and addresses, as kube-proxy does`;
    return [{ ...cluster, nodes: [...cluster.nodes, this.#ownNode] }, [gone]];
  }

  /** An empty table of the current cluster. */
  newTable(): Block[] {
    return blocksOf(this.#view, this.#planned(), this.node);
  }

  /** Fills the table's open cells; see {@link runPass}. */
  fill(blocks: readonly Block[], onProgress: () => void, signal: AbortSignal): Promise<void> {
    return runPass(blocks, { answers: this.#planned(), probers: this.network.probers, onProgress, signal });
  }

  #planned(): PlannedAnswers {
    if (this.#answers === undefined) throw new Error("the manifests have not been read yet");
    return this.#answers;
  }

  /** Ends the proxy and removes the network. Safe to call twice. */
  async end(): Promise<void> {
    await this.page.close();
    await this.proxy.stop();
    await this.network.destroy();
  }
}
