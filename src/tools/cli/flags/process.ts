/** Flags of the process itself: what a run does, where it finds things, which node it is. Reference start.md §2.2, §2.3. */

import { type AnyFlag, type Flag, type FlagSpec, flag } from "../../../contract/config/flag.ts";
import { boolType, type FlagType, stringType } from "../../../contract/config/flag-types.ts";
import { CURRENT_RELEASE, releaseNames } from "../../../contract/config/release.ts";
import { CLIENT_CONNECTION, GENERAL, SELDOM } from "../../../contract/config/v1alpha1-document.ts";
import { parsed, parseGoBool, quoteGo, refused } from "../../../text/go-text.ts";

type PlainSpec<T> = Omit<FlagSpec<T>, "type" | "initial">;

/** A flag whose text is empty unless it is given. @param spec.word replaces `string` in the help */
export const textFlag = ({
  word = stringType.word,
  ...spec
}: PlainSpec<string> & { readonly word?: string }): Flag<string> =>
  flag({ ...spec, type: { ...stringType, word }, initial: "" });

export const switchFlag = (spec: PlainSpec<boolean>): Flag<boolean> =>
  flag({ ...spec, type: boolType, initial: false });

const RELEASE = /^v(\d+\.\d+\.\d+)(?:[-+].*)?$/;

const versionType: FlagType<{
  readonly print: "none" | "short" | "raw";
  /** Undefined: the version of the release that is copied. */
  readonly gitVersion: string | undefined;
}> = {
  word: "version[=true]",
  bareText: "true",
  read: (text, soFar) => {
    if (text === "raw") return parsed({ ...soFar, print: "raw" });
    if (text.startsWith("v")) {
      return RELEASE.exec(text)?.[1] === RELEASE.exec(CURRENT_RELEASE.version)?.[1]
        ? parsed({ ...soFar, gitVersion: text })
        : refused(
            `version ${quoteGo(text)} must match major/minor/patch of default version ${quoteGo(CURRENT_RELEASE.version)}`,
          );
    }
    const wanted = parseGoBool(text);
    return wanted.ok ? parsed({ ...soFar, print: wanted.value ? "short" : "none" }) : refused(wanted.error);
  },
  format: ({ print }) => ({ none: "false", short: "true", raw: "raw" })[print],
};

/** What a run does, and where it finds things; these flags also count with a configuration file. */
export const ACTIONS = {
  cleanup: switchFlag({
    name: "cleanup",
    help: "Remove the rules of every mode and exit.",
  }),
  initOnly: switchFlag({
    name: "init-only",
    help: "Do what needs full root privileges and exit; a second start with --config then needs only CAP_NET_ADMIN.",
  }),
  writeConfigTo: textFlag({
    name: "write-config-to",
    help: "Write the resolved configuration to this file and exit.",
  }),
  configFile: textFlag({
    name: "config",
    help: "The configuration file. With it, only the logging flags, --hostname-override, --master, the flags that name an action and those that say so still count.",
  }),
  master: textFlag({
    name: "master",
    help: "The URL of the API server; overrides the kubeconfig, also with --config.",
  }),
  manifests: textFlag({
    name: "manifests",
    word: "directory",
    help: "Read Services, EndpointSlices and Nodes from the manifests in this folder, and watch it, instead of using an API server. May be used together with --config.",
    isExtension: true,
  }),
  inspectSocket: textFlag({
    name: "inspect-socket",
    help: "The Unix socket that serves kube-proxy status, services, monitor and page, for the daemon's user only. Empty: none. May be used together with --config.",
    isExtension: true,
  }),
  inspectBindAddress: textFlag({
    name: "inspect-bind-address",
    word: "IP:port",
    help: "Serve a read-only page here that shows Services, packet paths, syncs and problems; it has no authentication. For example 127.0.0.1:10260. Empty: no page. May be used together with --config.",
    isExtension: true,
  }),
  startupTaint: textFlag({
    name: "startup-taint",
    word: "key",
    help: "Remove the taint with this key from the Node once the rules of every family are in force; needs permission to patch nodes. May be used together with --config.",
    isExtension: true,
  }),
  healthzService: textFlag({
    name: "healthz-service",
    word: "namespace/name:port",
    help: "On each request, /healthz also connects to the cluster IP of this TCP port of a Service, and answers 503 if that fails although an endpoint answers directly. Empty: no such check. May be used together with --config.",
    isExtension: true,
  }),
};

export const VERSION = flag({
  name: "version",
  type: versionType,
  initial: { print: "none", gitVersion: undefined },
  help: `--version and --version=raw print the version and exit; --version=${CURRENT_RELEASE.version}-… reports this version instead.`,
});

export const HELP = switchFlag({
  name: "help",
  shorthand: "h",
  help: "Print this text and exit.",
});

export const COMPATIBILITY = SELDOM.flag({
  name: "compatibility",
  field: "compatibility",
  type: { ...stringType, word: "release" },
  help: `The Kubernetes release whose rules, messages and defaults to use: ${releaseNames()}.`,
  isExtension: true,
});

export const LOG_FILE = textFlag({
  name: "log-file",
  help: "Append log lines to this file instead of standard error; at 100 MB it is renamed to FILE.1. For Windows services, which have no standard error. May be used together with --config.",
  isExtension: true,
});

export const WINDOWS_SERVICE = switchFlag({
  name: "windows-service",
  help: "On Windows, run as the service kube-proxy under the service control manager. May be used together with --config.",
  isExtension: true,
});

export const HOSTNAME_OVERRIDE = textFlag({
  name: "hostname-override",
  help: "The name of this node, if it is not the host name; overrides the configuration file.",
});

export const PROCESS_FLAGS: readonly AnyFlag[] = [
  ...Object.values(ACTIONS),
  flag({
    name: "boot-id-file",
    type: stringType,
    initial: "/proc/sys/kernel/random/boot_id",
    help: "Accepted for compatibility, without effect.",
  }),
  flag({
    name: "machine-id-file",
    type: stringType,
    initial: "/etc/machine-id,/var/lib/dbus/machine-id",
    help: "Accepted for compatibility, without effect.",
  }),
  COMPATIBILITY,
  ...GENERAL.flags({
    configSyncPeriod: ["config-sync-period", "How often all known objects are processed again; must be positive."],
    featureGates: [
      "feature-gates",
      "Feature gates, as comma-separated name=true or name=false pairs; may be repeated.",
    ],
    enableProfiling: ["profiling", "Serve /debug on the metrics server."],
    showHiddenMetricsForVersion: [
      "show-hidden-metrics-for-version",
      `Show metrics that this version hides: empty, or the previous minor version (${CURRENT_RELEASE.previousMinor}).`,
    ],
  }),
  HELP,
  HOSTNAME_OVERRIDE,
  ...CLIENT_CONNECTION.flags({
    burst: ["kube-api-burst", "The burst of requests to the API server that --kube-api-qps does not limit."],
    contentType: ["kube-api-content-type", "The content type of requests to the API server."],
    qps: ["kube-api-qps", "Requests to the API server per second; negative: no limit."],
    kubeconfig: [
      "kubeconfig",
      "The file with the address of the API server and the credentials; ignored with --config.",
    ],
  }),
  LOG_FILE,
  VERSION,
  SELDOM.flag({
    name: "windows-priorityclass",
    field: "windowsPriorityClass",
    help: "On Windows, the priority class of the process: IDLE_PRIORITY_CLASS, BELOW_NORMAL_PRIORITY_CLASS, NORMAL_PRIORITY_CLASS, ABOVE_NORMAL_PRIORITY_CLASS, HIGH_PRIORITY_CLASS or REALTIME_PRIORITY_CLASS. Empty: inherited.",
    isExtension: true,
  }),
  WINDOWS_SERVICE,
];
