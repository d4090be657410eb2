/**
 * What a proxy mode is. A mode is one folder here, with a descriptor in its `index.ts` and one line in `registry.ts`.
 * Everything that depends on the mode is derived from descriptors: flags, the section of the configuration file with its
 * defaults, checks and encoding, metrics, forms of `render`, and what is cleaned up.
 *
 * Descriptors are loaded with every start, so they import neither the kernel boundary nor planners; those come with
 * {@link ModeDescriptor.loadRuntime} and {@link ModeDescriptor.loadRenderer}.
 */

import type { Clock } from "../async/clock.ts";
import type { DraftConfig, KubeProxyConfig } from "../config/config.ts";
import type { PlainObject, SectionFields } from "../config/document-fields.ts";
import type { AnyFlag } from "../config/flag.ts";
import type { ConfigurationDocument } from "../config/v1alpha1-document.ts";
import type { OfflineNode } from "../inspect/offline-node.ts";
import type { ConntrackTable } from "../kernel/conntrack/conntrack.ts";
import type { AddressWatch } from "../kernel/route/address-watch.ts";
import type { Logger } from "../logging/logger.ts";
import type { MetricFamilies } from "../metrics/metric-families.ts";
import type { PlannedNode } from "../model/node-plan-config.ts";
import type { IpFamily } from "../net/ip.ts";
import type { Backend } from "../sync/backend.ts";
import type { Dump, DumpReader } from "../trace/dump/recognise.ts";
import type { Deviation } from "./deviations.ts";
import type { ModeInspection } from "./inspection.ts";
import type { ModeRenderer } from "./rendering.ts";
import type { StopPolicy } from "./stop-policy.ts";

/** `syncPeriod` and `minSyncPeriod` as they are written back: `0s` in the sections of modes that do not run. */
export interface WrittenPeriods extends PlainObject {
  readonly syncPeriod: string;
  readonly minSyncPeriod: string;
}

/**
 * The mode's section of the configuration file, which has the mode's name. A section with the fields `syncPeriod` and
 * `minSyncPeriod` has periods of its own, and one with `masqueradeAll` a setting of its own; a mode without them uses those
 * of the iptables section, as upstream's modes do.
 */
export interface ModeConfig<Fields extends SectionFields, Section> {
  /** Upstream's type of the section, with its package: part of error texts. */
  readonly goType: string;
  readonly fields: Fields;
  /** Reads the mode's section, and fields of its own elsewhere in the document; applies the defaults. Pure. */
  resolve(document: ConfigurationDocument): Section;
  /** The errors of the section, in upstream's words where it has the field. Asked whichever mode runs. Pure. */
  errors(draft: DraftConfig): readonly string[];
  /** A warning about settings that no longer have an effect. Pure. @default none */
  notice?(document: ConfigurationDocument): string | undefined;
  /** The section as it is written back; undefined leaves it out. Pure. */
  encode(draft: DraftConfig, context: EncodeContext): PlainObject | undefined;
  /** Fields of the mode outside of its section, as they are written back at the end of the document. Pure. */
  encodeAtTop?(draft: DraftConfig): PlainObject;
  /** The flags that stand for fields of the section, but for the periods. */
  readonly flags: readonly AnyFlag[];
  /** Help of `--MODE-sync-period` and `--MODE-min-sync-period`; without it the iptables flags set the mode's periods. */
  readonly periodFlags?: { readonly syncPeriod: string; readonly minSyncPeriod: string };
  /** `minSyncPeriod` where the file has none, milliseconds. */
  readonly minSyncPeriodMs: number;
  /**
   * What to keep between two syncs when neither file nor flags say, milliseconds; `minSyncPeriod` is still written back as
   * {@link minSyncPeriodMs}. @default minSyncPeriodMs
   */
  readonly restWhenUnsetMs?: number;
  /** `nodePortAddresses` where nothing is set. @default [] */
  readonly nodePortAddresses?: readonly string[];
}

/** What a section needs to know to be written back. */
interface EncodeContext {
  readonly periods: WrittenPeriods;
  /** `masqueradeAll` of the section. */
  readonly masqueradeAll: boolean;
}

/** Facts and parts that the families of a node share. */
export interface NodeContext {
  readonly config: KubeProxyConfig;
  readonly nodeName: string;
  /** Families that will be served, the first of them first. */
  readonly families: readonly IpFamily[];
  /** Where the mode defines its measurements. */
  readonly metrics: MetricFamilies;
  readonly conntrack: ConntrackTable;
  /** Tells when an address of the host comes or goes; one subscription for the whole program. */
  readonly addressWatch: Pick<AddressWatch, "watch">;
  readonly clock: Clock;
  readonly log: Logger;
  /** Version and commit of this program. */
  readonly program: string;
}

/** One family of the node. */
export interface FamilyContext extends PlannedNode {
  readonly log: Logger;
}

/** The name of a mode's section of the configuration. */
export type SectionNameOf<M extends { readonly name: string; readonly sectionName?: string }> = M extends {
  readonly sectionName: infer Name extends string;
}
  ? Name
  : M["name"];

/** For a mode that must wait for its host. */
export interface HostWait {
  readonly config: KubeProxyConfig;
  readonly clock: Clock;
  readonly log: Logger;
  readonly signal: AbortSignal;
  /** Told why it waits, and with undefined when that is over: the health server shows it. */
  onWaiting(reason: string | undefined): void;
}

/** A mode at work on a node: the parts that its families share are open until {@link close}. */
export interface OpenMode {
  /** Prepares the node for the family and builds its backend. @throws Error when the mode cannot work. */
  backendFor(context: FamilyContext): Promise<Backend>;
  /** Gives back sockets and watches; what is in the kernel stays. Called after the last backend has closed. */
  close(): Promise<void>;
}

/** The part of a mode that reaches the kernel. */
export interface ModeRuntime {
  /** Undefined when the host can run the mode for the family; otherwise upstream's log message and the cause. */
  unsupported(
    family: IpFamily,
    config: KubeProxyConfig,
  ): Promise<{ readonly message: string; readonly error: string } | undefined>;
  /**
   * What this host's kernel lacks for the mode beyond netfilter, in words; undefined when it can run the mode. Asked by demo
   * and tests before they start a daemon. @default nothing is missing
   */
  missingInKernel?(): Promise<string | undefined>;
  /**
   * Waits until the host has what the mode works with; called before anything else is asked of it. @throws Error when waiting is of
   * no use, and the signal's reason. @default there is nothing to wait for
   */
  awaitHost?(wait: HostWait): Promise<void>;
  /**
   * Why one family only can be served on this node, though both are supported.
   * @default both can
   */
  singleFamilyReason?(config: KubeProxyConfig, log: Logger): Promise<string | undefined>;
  /** Takes what the families share. @throws Error when the mode cannot work on this host. */
  open(node: NodeContext): Promise<OpenMode>;
  /** Removes what the mode leaves in the kernel, all families; resolves to whether everything worked. Never rejects. */
  cleanUp(log: Logger, config?: KubeProxyConfig): Promise<boolean>;
  /** Defines every measurement of the mode, and nothing else: for the list in docs/metrics.md. */
  defineMetrics(families: MetricFamilies): void;
  /**
   * Prints facts about this host for a report, also what it makes of objects that are removed again. Optional: only where they cannot be
   * known otherwise. @returns whether all is as the mode needs it.
   */
  checkHost?(options: {
    readonly networkName: string;
    readonly writes: boolean;
    print(line: string): void;
  }): Promise<boolean>;
}

/** A mode, or one of its layouts, whose rules `prove` compares with what Services mean. */
export interface ProvedVariant {
  /** As `prove --modes` takes it. */
  readonly name: string;
  /** In what tools print of its rules, a line that no other mode has; of nft, `TABLE CHAIN`. @default none */
  readonly sign?: RegExp;
  /** Chooses it. @default the mode alone does */
  choose?(draft: DraftConfig): DraftConfig;
  /** What it does otherwise, as documented. */
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
  /** The section's name where it is another one. */
  readonly sectionName?: string;
  /** What the mode runs on; elsewhere it can be rendered and explained. @default Linux */
  readonly platforms?: readonly NodeJS.Platform[];
  /** Whether upstream's kube-proxy knows the mode; its error texts name only those of the platform. */
  readonly isUpstream: boolean;
  /** The feature gate without which the mode is not known. @default none */
  readonly gate?: string;
  readonly config: Config;
  /** Upstream's `Using … Proxier`. */
  readonly startMessage: string;
  /** Begins the error when no family can be served: upstream's `iptables is not available on this host `. */
  readonly unavailableText: string;
  /** Logged, and sent as an event about the node, whenever the mode starts. */
  readonly deprecation?: { readonly message: string; readonly reason: "IPVSDeprecation" };
  /** Whether the mode, so configured, uses netfilter and connection tracking. @default true */
  usesNetfilter?(config: KubeProxyConfig): boolean;
  /** @default the rules stay in place, and the process ends within seconds */
  stopPolicy?(config: KubeProxyConfig): StopPolicy;
  /** Node ports and health checks answer at every address of the node, so that `nodePortAddresses` has no effect. @default false */
  readonly nodePortsEverywhere?: boolean;
  /**
   * Modes whose rules stay until this mode's first sync, which replaces them itself. The leftovers of every other mode are
   * removed (reference operation.md §11): before the first sync, or after it where {@link hasOwnNames} allows that.
   */
  readonly replacesInPlace?: readonly string[];
  /**
   * Nothing that it has in the kernel has a name that another mode uses, but for those that it replaces in place. So its rules
   * and those of another mode can stand side by side: the old ones go when the new ones are in force, and no client notices.
   *
   * @default false
   */
  readonly hasOwnNames?: true;
  /** Modes whose chains the leftovers of this one refer to: it is cleaned up before them. */
  readonly cleanUpBefore?: readonly string[];
  /** A device that has addresses of Services, which are none of the node's own. @default none */
  readonly ownDevice?: string;
  /** Flags of the mode that decide what is programmed, so that `render` takes them as well. They take a value. @default none */
  readonly renderFlags?: readonly AnyFlag[];
  /** Forms of `render --output`, the default first. */
  readonly renderForms: readonly string[];
  /**
   * Forms that together hold everything a packet meets, for `trace`; `render` need not have them. Of `OfflineNode.others` they count
   * the rules, where places of rules are said. @default the mode cannot be traced
   */
  readonly traceForms?: readonly string[];
  /** What packets meet beside rules: sockets of programs, and of the proxy itself. @default nothing */
  loadTraceStages?(): Promise<(node: OfflineNode, config: KubeProxyConfig) => readonly Dump[]>;
  /** Reads what the mode's own tools print, for `trace --dump`. @default there is nothing of the kind */
  loadDumpReader?(): Promise<DumpReader>;
  /** For `prove`: what is compared, each under its own name. @default nothing */
  readonly proved?: readonly ProvedVariant[];
  loadRenderer(): Promise<ModeRenderer<Plan>>;
  /** For `explain` and `diff`, and where the daemon is to count connections. */
  loadInspection(): Promise<ModeInspection>;
  loadRuntime(): Promise<ModeRuntime>;
}
