/**
 * Distributes the events of a source to the proxiers of one or two families: reference node.md §11, with the topology
 * filter of §8.5 and the ServiceCIDR bookkeeping of §1.
 */
import type { ObjectEvent, ObjectKind, ObjectKinds, ObjectSink } from "../cluster/object-source.ts";
import {
  type EndpointSliceRecord,
  type NodeRecord,
  objectKeyText,
  type ServiceCidrRecord,
  type ServiceRecord,
} from "../cluster/objects.ts";
import type { Logger } from "../logging/logger.ts";
import type { IpFamily } from "../net/ip.ts";

/** Receives events: a {@link Proxier}, or a stand-in in tests. */
export interface ProxierSink {
  readonly family: IpFamily;
  onService(event: ObjectEvent<ServiceRecord>): void;
  onEndpointSlice(event: ObjectEvent<EndpointSliceRecord>): void;
  onServicesSynced(): void;
  onEndpointSlicesSynced(): void;
  onZone(zone: string | undefined): void;
  onServiceCIDRs(cidrs: readonly string[]): void;
  sync(): void;
  run(signal: AbortSignal): Promise<void>;
}

/** Also receives events about this node: the node manager, or the health server. */
export type NodeSink = KindSink<NodeRecord>;

interface DualStackOptions {
  /** One or two, IPv4 first. */
  readonly proxiers: readonly ProxierSink[];
  /** Events of other nodes are dropped. */
  readonly nodeName: string;
  readonly log: Logger;
}

/** Receives the events of one kind. */
interface KindSink<T> {
  onEvent(event: ObjectEvent<T>): void;
  onSynced(): void;
}

export class DualStackDispatcher implements ObjectSink {
  readonly #options: DualStackOptions;
  readonly #cidrsByName = new Map<string, readonly string[]>();
  #zone: string | undefined;

  readonly #kinds: { readonly [K in ObjectKind]: KindSink<ObjectKinds[K]> } = {
    services: {
      onEvent: (event) => {
        for (const proxier of this.#options.proxiers) proxier.onService(event);
      },
      onSynced: () => {
        for (const proxier of this.#options.proxiers) proxier.onServicesSynced();
      },
    },
    endpointSlices: {
      onEvent: (event) => this.#onEndpointSlice(event),
      onSynced: () => {
        for (const proxier of this.#options.proxiers) proxier.onEndpointSlicesSynced();
      },
    },
    // The first event already gives the zone.
    nodes: { onEvent: (event) => this.#onNode(event), onSynced() {} },
    serviceCIDRs: { onEvent: (event) => this.#onServiceCIDR(event), onSynced: () => this.#tellServiceCIDRs() },
  };

  constructor(options: DualStackOptions) {
    this.#options = options;
  }

  onEvent<K extends ObjectKind>(kind: K, event: ObjectEvent<ObjectKinds[K]>): void {
    this.#kinds[kind].onEvent(event);
  }

  onSynced(kind: ObjectKind): void {
    this.#kinds[kind].onSynced();
  }

  /** Queues a sync of every family. */
  sync(): void {
    for (const proxier of this.#options.proxiers) proxier.sync();
  }

  /** Runs all proxiers until the signal aborts. */
  async run(signal: AbortSignal): Promise<void> {
    await Promise.all(this.#options.proxiers.map((proxier) => proxier.run(signal)));
  }

  /** Slices of a family without a proxier are ignored. */
  #onEndpointSlice(event: ObjectEvent<EndpointSliceRecord>): void {
    const { addressType } = event.object;
    // The API never changes the address type of a slice, but editing a manifest can: then both families must be told.
    const oldType = event.kind === "update" ? event.old.addressType : addressType;
    for (const proxier of this.#options.proxiers) {
      if (proxier.family === addressType || proxier.family === oldType) proxier.onEndpointSlice(event);
    }
    if (addressType === "FQDN" && event.kind !== "delete") {
      const facts = { endpointSlice: objectKeyText(event.object), addressType };
      this.#options.log.error("EndpointSlice is ignored: its address type is not supported", undefined, facts);
    }
  }

  #onNode(event: ObjectEvent<NodeRecord>): void {
    if (event.object.name !== this.#options.nodeName) return;
    if (event.kind === "delete" || event.object.zone === this.#zone) return;
    this.#zone = event.object.zone;
    for (const proxier of this.#options.proxiers) proxier.onZone(this.#zone);
  }

  #onServiceCIDR(event: ObjectEvent<ServiceCidrRecord>): void {
    if (event.kind === "delete") this.#cidrsByName.delete(event.object.name);
    else this.#cidrsByName.set(event.object.name, event.object.cidrs);
    this.#tellServiceCIDRs();
  }

  #tellServiceCIDRs(): void {
    const cidrs = [...new Set([...this.#cidrsByName.values()].flat())].sort();
    for (const proxier of this.#options.proxiers) proxier.onServiceCIDRs(cidrs);
  }
}
