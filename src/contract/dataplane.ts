/**
 * The interface of a proxy mode. A mode is one folder here, with a descriptor in its `index.ts` and one line in
 * `registry.ts`. Everything that depends on the mode is derived from its descriptor: flags, the configuration section
 * with its defaults, validation and encoding, metrics, the forms of `render`, and the cleanup.
 *
 * Every start loads all descriptors, so they import neither the kernel boundary nor planners;
 * {@link ModeDescriptor.loadRuntime} and {@link ModeDescriptor.loadRenderer} load those.
 */

import type { Clock } from "../async/clock.ts";
import type { ConntrackTable } from "../kernel/conntrack/conntrack.ts";
import type { AddressWatch } from "../kernel/route/address-watch.ts";
import type { Logger } from "../logging/logger.ts";
import type { MetricFamilies } from "../metrics/metric-families.ts";
import type { PlannedNode } from "../model/node-plan-config.ts";
import type { IpFamily } from "../net/ip.ts";
import type { Dump, DumpReader } from "../trace/dump/recognise.ts";
import type { Backend } from "./backend.ts";
import type { DraftConfig, KubeProxyConfig } from "./config/config.ts";
import type { PlainObject, SectionFields } from "./config/document-fields.ts";
import type { AnyFlag } from "./config/flag.ts";
import type { ConfigurationDocument } from "./config/v1alpha1-document.ts";
import type { Deviation } from "./deviations.ts";
import type { OfflineNode } from "./inspect/offline-node.ts";
import type { ModeInspection } from "./inspection.ts";
import type { ModeRenderer } from "./rendering.ts";
import type { StopPolicy } from "./stop-policy.ts";

/** `syncPeriod` and `minSyncPeriod` as encoded: `0s` in the sections of modes that do not run. */
export interface WrittenPeriods extends PlainObject {
  readonly syncPeriod: string;
  readonly minSyncPeriod: string;
}

/**
 * The mode's section of the configuration file, which has the mode's name. A section with the fields `syncPeriod` and
 * `minSyncPeriod` has its own periods, and one with `masqueradeAll` its own setting; a mode without them uses those of
 * the iptables section, as upstream's modes do.
 */
export interface ModeConfig<Fields extends SectionFields, Section> {
  /** Upstream's type of the section, with its package; part of error texts. */
  readonly goType: string;
  readonly fields: Fields;
  /** Reads the mode's section, and the mode's fields elsewhere in the document, and applies the defaults. */
  resolve(document: ConfigurationDocument): Section;
  /** The errors of the section, in upstream's words if upstream has the field. Called whichever mode runs. */
  errors(draft: DraftConfig): readonly string[];
  /** A warning about settings that no longer have an effect. @default none */
  notice?(document: ConfigurationDocument): string | undefined;
  /** The encoded section; undefined leaves it out. */
  encode(draft: DraftConfig, context: EncodeContext): PlainObject | undefined;
  /** The encoded fields of the mode outside of its section, for the end of the document. */
  encodeAtTop?(draft: DraftConfig): PlainObject;
  /** The flags for fields of the section, except the periods. */
  readonly flags: readonly AnyFlag[];
  /** Help of `--MODE-sync-period` and `--MODE-min-sync-period`; without it the iptables flags set the mode's periods. */
  readonly periodFlags?: { readonly syncPeriod: string; readonly minSyncPeriod: string };
  /** The default of `minSyncPeriod`, in milliseconds. */
  readonly minSyncPeriodMs: number;
  /**
   * The pause between two syncs if neither file nor flags set one, in milliseconds; `minSyncPeriod` is still encoded as
   * {@link minSyncPeriodMs}. @default minSyncPeriodMs
   */
  readonly restWhenUnsetMs?: number;
  /** The default of `nodePortAddresses`. @default [] */
  readonly nodePortAddresses?: readonly string[];
}

/** What a section's encoding depends on. */
interface EncodeContext {
  readonly periods: WrittenPeriods;
  /** `masqueradeAll` of the section. */
  readonly masqueradeAll: boolean;
}

/** Facts and objects that the families of a node share. */
export interface NodeContext {
  readonly config: KubeProxyConfig;
  readonly nodeName: string;
  /** The served families, the primary one first. */
  readonly families: readonly IpFamily[];
  /** `spec.podCIDRs` of this node, as far as they are known. */
  readonly podCIDRs: readonly string[];
  /** Where the mode defines its metrics. */
  readonly metrics: MetricFamilies;
  readonly conntrack: ConntrackTable;
  /** Reports added and removed host addresses; one subscription for the whole program. */
  readonly addressWatch: Pick<AddressWatch, "watch">;
  readonly clock: Clock;
  readonly log: Logger;
}

/** One IP family of the node. */
export interface FamilyContext extends PlannedNode {
  readonly log: Logger;
}

/** The name of a mode's section of the configuration. */
export type SectionNameOf<M extends { readonly name: string; readonly sectionName?: string }> = M extends {
  readonly sectionName: infer Name extends string;
}
  ? Name
  : M["name"];

/** The input of {@link ModeRuntime.awaitHost}. */
export interface HostWait {
  readonly config: KubeProxyConfig;
  readonly clock: Clock;
  readonly log: Logger;
  readonly signal: AbortSignal;
  /** Called with the reason for waiting, and with undefined when the wait is over; the health server shows it. */
  onWaiting(reason: string | undefined): void;
}

/** A running mode: the resources that its families share are open until {@link close}. */
export interface OpenMode {
  /** Prepares the node for the family and builds its backend. @throws Error if the mode cannot work. */
  backendFor(context: FamilyContext): Promise<Backend>;
  /** Closes sockets and watches; the kernel's state stays. Called after the last backend has closed. */
  close(): Promise<void>;
}

/** Removes the mode's state of all families from the kernel; resolves to whether everything worked. Never rejects. */
export type CleanUp = (log: Logger, config?: KubeProxyConfig) => Promise<boolean>;

/** The part of a mode that uses the kernel while it runs. */
export interface ModeRuntime {
  /** Undefined if the host can run the mode for the family; otherwise upstream's log message and the cause. */
  unsupported(
    family: IpFamily,
    config: KubeProxyConfig,
  ): Promise<{ readonly message: string; readonly error: string } | undefined>;
  /**
   * What this host's kernel lacks for the mode beyond netfilter, in words; undefined if it can run the mode. Demo and
   * tests call it before they start a daemon. @default nothing is missing
   */
  missingInKernel?(): Promise<string | undefined>;
  /**
   * Waits until the host has what the mode needs; called before every other method. @throws Error if waiting cannot
   * help, and the signal's reason. @default does not wait
   */
  awaitHost?(wait: HostWait): Promise<void>;
  /**
   * Why only one family can be served on this node, although both are supported.
   * @default both can
   */
  singleFamilyReason?(config: KubeProxyConfig, log: Logger): Promise<string | undefined>;
  /** Opens the resources that the families share. @throws Error if the mode cannot work on this host. */
  open(node: NodeContext): Promise<OpenMode>;
  /**
   * Prints facts about this host for a report, including how it treats test objects, which are removed again. Only for
   * facts that cannot be learned otherwise. @returns whether the host has all that the mode needs.
   */
  checkHost?(options: {
    readonly networkName: string;
    readonly writes: boolean;
    print(line: string): void;
  }): Promise<boolean>;
}

/** A mode, or one of its layouts, whose rules `prove` compares with the meaning of Services. */
export interface ProvedVariant {
  /** Its name in `prove --modes`. */
  readonly name: string;
  /** Matches a line that tools print of this mode's rules only; for nft, `TABLE CHAIN`. @default none */
  readonly sign?: RegExp;
  /** Sets the configuration that chooses it. @default the mode is enough */
  choose?(draft: DraftConfig): DraftConfig;
  /** Its documented deviations. */
  deviations(config: KubeProxyConfig): readonly Deviation[];
}

/** One proxy mode. */
export interface ModeDescriptor<
  Name extends string,
  Config extends ModeConfig<SectionFields, unknown>,
  Plan extends object = object,
> {
  /** The value of `mode` and `--proxy-mode`, and the name of the section. */
  readonly name: Name;
  /** The name of the section if different. */
  readonly sectionName?: string;
  /** The platforms that the mode runs on; on others it can still be rendered and explained. @default Linux */
  readonly platforms?: readonly NodeJS.Platform[];
  /** Whether upstream's kube-proxy has the mode; upstream's error texts name only those of the platform. */
  readonly isUpstream: boolean;
  /** Set if the mode chooses all endpoints equally often, even where a hash or weights are asked for; that is said. @default false */
  readonly ignoresBalancing?: true;
  /**
   * Set if endpoints that do not answer can be left out: whether conntrack has translated every connection to them, or clients may
   * also connect to their own addresses. @default that is not possible
   */
  readonly leavesUnanswered?: "translated" | "direct";
  /** What chooses by a hash: rules that ask endpoints in turn, or the kernel by itself. @default sparse tables */
  readonly hashes?: "in-turn" | "in-kernel";
  /** The feature gate that enables the mode. @default none */
  readonly gate?: string;
  readonly config: Config;
  /** Upstream's `Using … Proxier`. */
  readonly startMessage: string;
  /** The start of the error when no family can be served: upstream's `iptables is not available on this host `. */
  readonly unavailableText: string;
  /** Logged, and sent as an event about the node, at every start of the mode. */
  readonly deprecation?: { readonly message: string; readonly reason: "IPVSDeprecation" };
  /** Whether the mode, with this configuration, uses netfilter and connection tracking. @default true */
  usesNetfilter?(config: KubeProxyConfig): boolean;
  /** @default the rules stay, and the process ends within seconds */
  stopPolicy?(config: KubeProxyConfig): StopPolicy;
  /** Whether node ports and health checks ignore `nodePortAddresses` and answer at every address. @default false */
  readonly nodePortsEverywhere?: boolean;
  /**
   * Modes whose rules stay until this mode's first sync, which replaces them. The leftovers of every other mode are
   * removed (reference operation.md §11): before the first sync, or after it if {@link hasOwnNames} allows that.
   */
  readonly replacesInPlace?: readonly string[];
  /**
   * Set if the mode shares no kernel names with others, except those that it replaces in place. Its rules can then
   * coexist with another mode's: the old ones are removed once the new ones are in force, and no client notices.
   *
   * @default false
   */
  readonly hasOwnNames?: true;
  /** Modes whose chains this mode's leftovers refer to: this one is cleaned up first. */
  readonly cleanUpBefore?: readonly string[];
  /** A device with addresses of Services, which do not count as the node's own. @default none */
  readonly ownDevice?: string;
  /** The mode's flags that change what is programmed; `render` accepts them too. They take a value. @default none */
  readonly renderFlags?: readonly AnyFlag[];
  /** The forms of `render --output`, the default first. */
  readonly renderForms: readonly string[];
  /**
   * Forms that together contain everything a packet meets, for `trace`; `render` need not have them. They count the
   * rules of `OfflineNode.others` if they report positions of rules. @default the mode cannot be traced
   */
  readonly traceForms?: readonly string[];
  /** Loads what packets meet beside rules: sockets of programs, and of the proxy itself. @default nothing */
  loadTraceStages?(): Promise<(node: OfflineNode, config: KubeProxyConfig) => readonly Dump[]>;
  /** Loads the reader of the output of the mode's own tools, for `trace --dump`. @default none */
  loadDumpReader?(): Promise<DumpReader>;
  /** The variants that `prove` compares, each under its own name. @default none */
  readonly proved?: readonly ProvedVariant[];
  loadRenderer(): Promise<ModeRenderer<Plan>>;
  /** For `explain` and `diff`, and for a daemon that counts connections. */
  loadInspection(): Promise<ModeInspection>;
  loadRuntime(): Promise<ModeRuntime>;
  /** Loaded at the start of every other mode, so it should import little. */
  loadCleanUp(): Promise<CleanUp>;
}
