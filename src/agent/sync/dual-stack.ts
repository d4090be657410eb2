/**
 * Distributes the events of a source to the proxiers of one or two families: reference node.md §11, with the topology
 * filter of §8.5 and the ServiceCIDR bookkeeping of §1. Until there are proxiers it holds back what they will get: the state, not the
 * events, so that it does not grow while it waits.
 */

import type { Logger } from "../../logging/logger.ts";
import { addressesOf } from "../../model/node-identity.ts";
import type { ObjectEvent, ObjectKind, ObjectKinds, ObjectSink } from "../../model/object-source.ts";
import {
  type EndpointSliceRecord,
  equalLists,
  type NodeRecord,
  objectKeyText,
  recordKey,
  type ServiceCidrRecord,
  type ServiceRecord,
} from "../../model/objects.ts";
import type { IpAddress, IpFamily } from "../../net/ip.ts";

/** Receives events: a {@link Proxier}, or a stand-in in tests. */
export interface ProxierSink {
  readonly family: IpFamily;
  onService(event: ObjectEvent<ServiceRecord>): void;
  onEndpointSlice(event: ObjectEvent<EndpointSliceRecord>): void;
  onSynced(kind: "services" | "endpointSlices"): void;
  onZone(zone: string | undefined): void;
  onServiceCIDRs(cidrs: readonly string[]): void;
  onOtherNodes(otherNodes: ReadonlyMap<IpAddress, string>): void;
}

/** Receives Node objects from the start, which decide how the proxiers are built: the node manager, or the health server. */
export type NodeSink = KindSink<NodeRecord>;

interface DualStackOptions {
  readonly nodeName: string;
  /** @default none */
  readonly nodeSinks?: readonly NodeSink[];
  readonly onMisread?: NonNullable<ObjectSink["onMisread"]>;
  /** Called for each Service that asks to leave out endpoints that do not answer. @default not needed */
  readonly onLeaving?: () => void;
  /** What to say of Services that ask for what the mode cannot do. @default nothing */
  readonly mode?: { readonly name: string; readonly ignoresBalancing?: true; readonly leavesUnanswered?: string };
  readonly log: Logger;
}

/** Receives the events of one kind. */
interface KindSink<T> {
  onEvent(event: ObjectEvent<T>): void;
  onSynced(): void;
}

/** Delivery order: first what decides how the rest is read. */
const KINDS: readonly ObjectKind[] = ["nodes", "serviceCIDRs", "services", "endpointSlices"];

export class DualStackDispatcher implements ObjectSink {
  readonly onMisread: NonNullable<ObjectSink["onMisread"]>;
  readonly #options: DualStackOptions;
  /** Empty until they are attached. */
  #proxiers: readonly ProxierSink[] = [];
  /** By kind, what is held back: by name, how to deliver the object. */
  readonly #held = new Map(KINDS.map((kind) => [kind, new Map<string, () => void>()]));
  readonly #synced = new Set<ObjectKind>();
  readonly #cidrsByName = new Map<string, readonly string[]>();
  readonly #otherNodes = new Map<IpAddress, string>();
  #zone: string | undefined;

  readonly #kinds: { readonly [K in ObjectKind]: KindSink<ObjectKinds[K]> } = {
    services: {
      onEvent: (event) => {
        this.#tellIgnored(event);
        for (const proxier of this.#proxiers) proxier.onService(event);
      },
      onSynced: () => this.#tellSynced("services"),
    },
    endpointSlices: {
      // Slices of a family without a proxier are ignored.
      onEvent: (event) => {
        const { addressType } = event.object;
        // The API never changes the address type of a slice, but editing a manifest can: then both families must be told.
        const oldType = event.kind === "update" ? event.old.addressType : addressType;
        for (const proxier of this.#proxiers) {
          if (proxier.family === addressType || proxier.family === oldType) proxier.onEndpointSlice(event);
        }
        if (addressType === "FQDN" && event.kind !== "delete") this.#tellUnsupported(event.object);
      },
      onSynced: () => this.#tellSynced("endpointSlices"),
    },
    // The first event already gives the zone.
    nodes: { onEvent: (event) => this.#onNode(event), onSynced() {} },
    serviceCIDRs: { onEvent: (event) => this.#onServiceCIDR(event), onSynced: () => this.#tellServiceCIDRs() },
  };

  constructor(options: DualStackOptions) {
    this.#options = options;
    this.onMisread = options.onMisread ?? (() => {});
  }

  onEvent<K extends ObjectKind>(kind: K, event: ObjectEvent<ObjectKinds[K]>): void {
    if (kind === "nodes") {
      const nodeEvent = event as ObjectEvent<ObjectKinds["nodes"]>; // K is "nodes" here
      for (const sink of this.#options.nodeSinks ?? []) sink.onEvent(nodeEvent);
    }
    if (this.#held.size > 0) this.#hold(kind, event);
    else this.#kinds[kind].onEvent(event);
  }

  #hold<K extends ObjectKind>(kind: K, { kind: change, object }: ObjectEvent<ObjectKinds[K]>): void {
    const key = recordKey(object);
    const held = this.#held.get(kind);
    if (change === "delete") held?.delete(key);
    else held?.set(key, () => this.#kinds[kind].onEvent({ kind: "add", object }));
  }

  onSynced(kind: ObjectKind): void {
    if (kind === "nodes") for (const sink of this.#options.nodeSinks ?? []) sink.onSynced();
    if (this.#held.size > 0) this.#synced.add(kind);
    else this.#kinds[kind].onSynced();
  }

  /** Delivers every existing object as an addition, and from then on each event as it comes. Call once. @param proxiers IPv4 first. */
  attach(proxiers: readonly ProxierSink[]): void {
    this.#proxiers = proxiers;
    for (const kind of KINDS) {
      for (const deliver of this.#held.get(kind)?.values() ?? []) deliver();
      if (this.#synced.has(kind)) this.#kinds[kind].onSynced();
    }
    this.#held.clear();
  }

  #tellSynced(kind: "services" | "endpointSlices"): void {
    for (const proxier of this.#proxiers) proxier.onSynced(kind);
  }

  #tellIgnored(event: ObjectEvent<ServiceRecord>): void {
    const { mode, log } = this.#options;
    if (event.kind === "delete" || mode === undefined) return;
    const { balancing, leaveUnanswered } = event.object;
    const before: Partial<ServiceRecord> = event.kind === "update" ? event.old : {};
    const service = objectKeyText(event.object);
    if (mode.ignoresBalancing === true && balancing !== undefined && before.balancing !== balancing) {
      log.warn("A Service's balancing does not count in this mode", { service, balancing, mode: mode.name });
      const why = `${mode.name} mode chooses endpoints without a hash`;
      this.onMisread(service, `balancing ${balancing} does not count: ${why}`);
    }
    if (leaveUnanswered !== true || before.leaveUnanswered === true) return;
    if (mode.leavesUnanswered !== undefined) this.#options.onLeaving?.();
    else {
      log.warn("A Service's leave-unanswered does not count in this mode", { service, mode: mode.name });
      this.onMisread(service, `leave-unanswered does not count: ${mode.name} mode leaves out no endpoint`);
    }
  }

  #tellUnsupported(slice: EndpointSliceRecord): void {
    const facts = { endpointSlice: objectKeyText(slice), addressType: slice.addressType };
    this.#options.log.error("EndpointSlice is ignored: its address type is not supported", undefined, facts);
  }

  #onNode(event: ObjectEvent<NodeRecord>): void {
    if (event.object.name !== this.#options.nodeName) {
      this.#onOtherNode(event);
      return;
    }
    if (event.kind === "delete" || event.object.zone === this.#zone) return;
    this.#zone = event.object.zone;
    for (const proxier of this.#proxiers) proxier.onZone(this.#zone);
  }

  /** Only a folder of manifests has other Nodes. */
  #onOtherNode(event: ObjectEvent<NodeRecord>): void {
    const { name } = event.object;
    const before = event.kind === "add" ? [] : addressesOf(event.kind === "update" ? event.old : event.object);
    const after = event.kind === "delete" ? [] : addressesOf(event.object);
    if (equalLists(before, after)) return;
    for (const address of before) if (this.#otherNodes.get(address) === name) this.#otherNodes.delete(address);
    for (const address of after) this.#otherNodes.set(address, name);
    for (const proxier of this.#proxiers) proxier.onOtherNodes(this.#otherNodes);
  }

  #onServiceCIDR(event: ObjectEvent<ServiceCidrRecord>): void {
    if (event.kind === "delete") this.#cidrsByName.delete(event.object.name);
    else this.#cidrsByName.set(event.object.name, event.object.cidrs);
    this.#tellServiceCIDRs();
  }

  #tellServiceCIDRs(): void {
    const cidrs = [...new Set([...this.#cidrsByName.values()].flat())].sort();
    for (const proxier of this.#proxiers) proxier.onServiceCIDRs(cidrs);
  }
}
