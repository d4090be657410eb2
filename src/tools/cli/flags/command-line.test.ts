import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { applyPlatformDefaults, EMPTY_DOCUMENT, resolveDocument } from "../../../agent/settings/defaults.ts";
import { UsageError } from "../output.ts";
import { type CommandLine, parseCommandLine } from "./command-line.ts";
import { helpText } from "./help.ts";
import { VERSION } from "./process.ts";
import { FLAGS } from "./table.ts";

function run(...args: readonly string[]): Extract<CommandLine, { kind: "run" }> {
  const line = parseCommandLine(args);
  assert.ok(line.kind === "run");
  return line;
}

function printed(...args: readonly string[]): string {
  const line = parseCommandLine(args);
  assert.ok(line.kind === "print");
  return line.text;
}

function refusal(...args: readonly string[]): UsageError {
  try {
    parseCommandLine(args);
  } catch (error) {
    assert.ok(error instanceof UsageError);
    return error;
  }
  assert.fail(`${args.join(" ")} was accepted`);
}

/** The value of a flag as text. */
function shown(name: string, ...args: readonly string[]): string {
  const flag = FLAGS.find((known) => known.name === name);
  assert.ok(flag !== undefined, name);
  return flag.shown(run(...args).flags.textsOf(flag));
}

describe("parseCommandLine: forms", () => {
  it("names a flag and its value in one word, as a container's args may have them", () => {
    for (const [word, written] of [
      ["--kubeconfig /var/lib/kubelet/kubeconfig.yml", "--kubeconfig=/var/lib/kubelet/kubeconfig.yml"],
      ["--v 4", "--v=4"],
      ["-v 4", "-v=4"],
      ["--bind_address  ::", "--bind_address=::"],
    ] as const) {
      const { message } = refusal(word);
      assert.equal(message, `"${word}" is a flag and its value in one word: write "${written}", or two words`);
    }
    assert.equal(shown("master", "--master=a b"), "a b");
    assert.equal(refusal("--bogus 1").message, "unknown flag: --bogus 1");
  });

  it("takes values with = and as the next argument, even one that looks like a flag", () => {
    assert.equal(shown("master", "--master=a=b"), "a=b");
    assert.equal(shown("master", "--master", "--cleanup"), "--cleanup");
    assert.equal(shown("oom-score-adj", "--oom-score-adj", "-5"), "-5");
    assert.equal(shown("master", "--master="), "");
  });

  it("takes boolean values only with =", () => {
    assert.equal(shown("cleanup", "--cleanup"), "true");
    assert.equal(shown("cleanup", "--cleanup=F"), "false");
    assert.equal(refusal("--cleanup", "false").message, '"kube-proxy" does not take any arguments, got ["false"]');
  });

  it("takes -v in all its forms", () => {
    for (const args of [["-v2"], ["-v=2"], ["-v", "2"], ["--v=2"], ["--v", "2"]])
      assert.equal(shown("v", ...args), "2");
  });

  it("takes underscores for hyphens", () => {
    assert.equal(shown("bind-address", "--bind_address=1.2.3.4"), "1.2.3.4");
  });

  it("lets the last value win, and adds up lists and maps", () => {
    assert.equal(shown("conntrack-min", "--conntrack-min=1", "--conntrack-min=0x10"), "16");
    assert.equal(shown("nodeport-addresses", "--nodeport-addresses=a,b", "--nodeport-addresses=c"), "[a,b,c]");
    assert.equal(shown("ipvs-exclude-cidrs", '--ipvs-exclude-cidrs="a,b",c'), '["a,b",c]');
    assert.equal(shown("feature-gates", "--feature-gates=B=true, A=0", "--feature-gates=B=f"), "A=false,B=false");
    assert.equal(shown("vmodule", "--vmodule=a=1,", "--vmodule=b*=2"), "a=1,b*=2");
  });

  it("takes an empty address for no change", () => {
    for (const name of ["bind-address", "healthz-bind-address", "metrics-bind-address"]) {
      assert.equal(shown(name, `--${name}=`), shown(name));
      assert.equal(shown(name, `--${name}=1.2.3.4`, `--${name}=`), "1.2.3.4");
    }
  });

  it("tolerates empty positional arguments and nothing else", () => {
    assert.equal(run("", "").kind, "run");
    const extra = refusal("", "extra", "--", "-v");
    assert.equal(extra.message, '"kube-proxy" does not take any arguments, got ["" "extra" "-v"]');
    assert.equal(extra.hint, undefined);
    assert.equal(refusal("help").message, '"kube-proxy" does not take any arguments, got ["help"]');
    assert.equal(refusal("-").message, '"kube-proxy" does not take any arguments, got ["-"]');
  });

  it("names deprecated flags each time they are used", () => {
    const notice = (name: string, other: string) =>
      `Flag --${name} has been deprecated, This flag is deprecated and will be removed in a future release. Please use --${other} instead.`;
    assert.deepEqual(run("--metrics_port=1", "--healthz-port", "2").stderrLines, [
      notice("metrics-port", "metrics-bind-address"),
      notice("healthz-port", "healthz-bind-address"),
    ]);
  });
});

describe("parseCommandLine: errors", () => {
  it("have upstream's words, and a line that says where to look", () => {
    const cases: readonly (readonly [readonly string[], string])[] = [
      [["--bogus=1"], "unknown flag: --bogus"],
      [["--bo_gus"], "unknown flag: --bo_gus"],
      [["--clean"], "unknown flag: --clean"],
      [["--toString"], "unknown flag: --toString"],
      [["--logtostderr"], "unknown flag: --logtostderr"],
      [["--cleanup-iptables"], "unknown flag: --cleanup-iptables"],
      [
        ["--proxy-port-range=2-1"],
        'invalid argument "2-1" for "--proxy-port-range" flag: "2-1" is not a port range: the last port, 1, is below the first, 2',
      ],
      [["---v"], "bad flag syntax: ---v"],
      [["--=1"], "bad flag syntax: --=1"],
      [["-x"], "unknown shorthand flag: 'x' in -x"],
      [["-hx"], "unknown shorthand flag: 'x' in -x"],
      [["-v"], "flag needs an argument: 'v' in -v"],
      [["--master"], "flag needs an argument: --master"],
      [["-vx"], 'invalid argument "x" for "-v, --v" flag: strconv.ParseUint: parsing "x": invalid syntax'],
      [["--bind-address", "abc"], 'invalid argument "abc" for "--bind-address" flag: "abc" is not a valid IP address'],
      [
        ["--healthz-bind-address=:10256"],
        'invalid argument ":10256" for "--healthz-bind-address" flag: "" is not a valid IP address',
      ],
      [
        ["--metrics-bind-address=1.2.3.4:x"],
        'invalid argument "1.2.3.4:x" for "--metrics-bind-address" flag: "x" is not a valid number',
      ],
      [
        ["--cleanup=maybe"],
        'invalid argument "maybe" for "--cleanup" flag: strconv.ParseBool: parsing "maybe": invalid syntax',
      ],
      [
        ["--conntrack-min=1.5"],
        'invalid argument "1.5" for "--conntrack-min" flag: strconv.ParseInt: parsing "1.5": invalid syntax',
      ],
      [
        ["--conntrack-min=2147483648"],
        'invalid argument "2147483648" for "--conntrack-min" flag: strconv.ParseInt: parsing "2147483648": value out of range',
      ],
      [
        ["--kube-api-qps=a"],
        'invalid argument "a" for "--kube-api-qps" flag: strconv.ParseFloat: parsing "a": invalid syntax',
      ],
      [
        ["--config-sync-period=10"],
        'invalid argument "10" for "--config-sync-period" flag: time: missing unit in duration "10"',
      ],
      [["--feature-gates=A"], 'invalid argument "A" for "--feature-gates" flag: malformed pair, expect string=bool'],
      [
        ["--feature-gates=A=x"],
        'invalid argument "A=x" for "--feature-gates" flag: invalid value of A: x, err: strconv.ParseBool: parsing "x": invalid syntax',
      ],
      [["--vmodule=a"], 'invalid argument "a" for "--vmodule" flag: "a" does not have the pattern=N format'],
      [
        ["--version=v9.9.9"],
        'invalid argument "v9.9.9" for "--version" flag: version "v9.9.9" must match major/minor/patch of default version "v1.37.0"',
      ],
      [
        ["--version=xyz"],
        'invalid argument "xyz" for "--version" flag: strconv.ParseBool: parsing "xyz": invalid syntax',
      ],
    ];
    for (const [args, message] of cases) {
      const error = refusal(...args);
      assert.equal(error.message, message, args.join(" "));
      assert.match(
        error.hint ?? "",
        /^(Did you mean --[a-z-]+\? Otherwise s|S)ee 'kube-proxy --help'\.$|^kube-proxy has no --[a-z-]+ since v1\.\d+\. /,
      );
    }
  });

  it("say which flag was probably meant", () => {
    const meant = (flag: string) => /--[a-z-]+/.exec(refusal(flag).hint?.split("?")[0] ?? "")?.[0];
    assert.equal(meant("--clean"), "--cleanup");
    assert.equal(meant("--proxy_mod=nftables"), "--proxy-mode");
    assert.equal(meant("--mode=nftables"), "--proxy-mode");
    assert.equal(meant("--hostname-overide=a"), "--hostname-override");
    assert.equal(refusal("--telepathy").hint, "See 'kube-proxy --help'.");
  });

  it("come before help and version", () => {
    assert.equal(refusal("--help", "--bogus").message, "unknown flag: --bogus");
    assert.equal(refusal("--version", "extra").hint, undefined);
  });
});

describe("parseCommandLine: help and version", () => {
  it("prints the version in both forms", () => {
    const own =
      /^Kubernetes v1\.37\.0\nkube-proxy-ts \S+ \(commit [0-9a-f]{40}, Node\.js v\S+\)\ncompatibility: v1\.36, v1\.37 or v1\.38 \(preview\)\n$/;
    assert.match(printed("--version"), own);
    assert.match(printed("--version=true"), own);
    const start =
      'version.Info{Major:"1", Minor:"37", EmulationMajor:"", EmulationMinor:"", MinCompatibilityMajor:"", MinCompatibilityMinor:"", GitVersion:"v1.37.0", GitCommit:"';
    assert.ok(printed("--version=raw").startsWith(start));
    assert.match(printed("--version=raw"), /Platform:"linux\/[a-z0-9]+"\}\nkube-proxy-ts .*\n$/);
  });

  it("reports another suffix of the version when asked to", () => {
    assert.equal(run("--version=v1.37.0-acme.1").flags.get(VERSION).gitVersion, "v1.37.0-acme.1");
    assert.match(printed("--version=v1.37.0+x", "--version"), /^Kubernetes v1\.37\.0\+x\n/);
    assert.equal(run("--version=false").flags.get(VERSION).gitVersion, undefined);
  });

  it("prints the version of the release that is copied", () => {
    assert.match(printed("--version", "--compatibility=v1.36"), /^Kubernetes v1\.36\.2\n/);
    assert.match(printed("--compatibility=v1.38", "--version=raw"), /Minor:"38".*GitVersion:"v1\.38\.0-alpha\.2"/);
  });

  it("lists every flag that is not deprecated, with type and default", () => {
    for (const args of [["--help"], ["-h"]]) assert.equal(parseCommandLine(args).kind, "help");
    const text = helpText();
    for (const flag of FLAGS) {
      assert.equal(new RegExp(`--${flag.name}[ \\n]`).test(text), flag.deprecated === undefined, flag.name);
    }
    assert.match(text, /--conntrack-min int32 \(default 131072\)/);
    assert.match(text, /--manifests directory \[extension/);
    assert.match(text, /kube-proxy render/);
    assert.match(text, /KubeProxyNFTablesLocalhostNodePorts=true\|false \(ALPHA - default=false\)/);
    assert.doesNotMatch(text, /NFTablesProxyMode/);
  });
});

describe("flags", () => {
  it("are upstream's, --manifests, --inspect-bind-address, --inspect-socket, --log-file, --nftables-layout, --nftables-localhost-nodeports, --compatibility, --startup-taint, --healthz-service, and those of userspace and ebpf mode and of Windows", () => {
    const names = `bind-address bind-address-hard-fail boot-id-file cleanup cluster-cidr compatibility config config-sync-period
      conntrack-max-per-core conntrack-min conntrack-tcp-be-liberal conntrack-tcp-timeout-close-wait
      conntrack-tcp-timeout-established conntrack-udp-timeout conntrack-udp-timeout-stream detect-local-mode ebpf-cgroup-root ebpf-hold-node-ports ebpf-host-namespace-only ebpf-packet-interfaces
      ebpf-packet-path ebpf-pin-folder ebpf-remembered-sockets ebpf-valid-for enable-dsr
      feature-gates forward-healthcheck-vip healthz-bind-address healthz-port healthz-service help hostname-override init-only inspect-bind-address inspect-socket iptables-localhost-nodeports iptables-masquerade-bit
      iptables-min-sync-period iptables-sync-period ipvs-exclude-cidrs ipvs-min-sync-period ipvs-scheduler ipvs-strict-arp
      ipvs-sync-period ipvs-tcp-timeout ipvs-tcpfin-timeout ipvs-udp-timeout kube-api-burst kube-api-content-type
      kube-api-qps kubeconfig log-file log-flush-frequency log-json-info-buffer-size log-json-split-stream log-text-info-buffer-size
      log-text-split-stream logging-format machine-id-file manifests masquerade-all master metrics-bind-address metrics-port
      network-name nftables-layout nftables-localhost-nodeports nodeport-addresses oom-score-adj pod-bridge-interface pod-interface-name-prefix profiling proxy-mode
      proxy-port-range root-hnsendpoint-name show-hidden-metrics-for-version source-vip startup-taint udp-timeout userspace-drain-timeout userspace-rules v version vmodule
      windows-priorityclass windows-service write-config-to`;
    assert.deepEqual(
      FLAGS.map((flag) => flag.name),
      names.split(/\s+/),
    );
  });

  it("have the defaults of the configuration that they overlay", () => {
    const defaults = resolveDocument(EMPTY_DOCUMENT);
    for (const flag of FLAGS) {
      // Users do not type a list's text form, and an explicitly empty prefix is an error of its own.
      if (flag.defaultText === "[]" || flag.name === "cluster-cidr") continue;
      assert.deepEqual(flag.overlay(defaults, [flag.defaultText]), defaults, flag.name);
    }
  });

  it("each overlay the field that upstream documents", () => {
    const defaults = applyPlatformDefaults(resolveDocument(EMPTY_DOCUMENT));
    const ipvs = { ...defaults, mode: "ipvs" };
    const texts = ["true", "false", "7", "7s", "9.9.9.9", "A=true", "x", "a=1"];
    const changed = FLAGS.map((flag) => {
      const base = flag.name.startsWith("ipvs-") ? ipvs : defaults;
      const paths = texts.flatMap((text) => changedPaths(base, flag.overlay(base, [text])));
      return `${flag.name} ${[...new Set(paths)].join(" ")}`.trim();
    });
    assert.deepEqual(
      changed.filter((line) => line.includes(" ")),
      FIELDS_OF_FLAGS.trim().split(/\s*\n\s*/),
    );
  });
});

/** The fields in which two values differ, as paths. */
function changedPaths(before: unknown, after: unknown, path = ""): readonly string[] {
  if (!isRecord(before) || !isRecord(after)) return JSON.stringify(before) === JSON.stringify(after) ? [] : [path];
  const keys = new Set([...Object.keys(before), ...Object.keys(after)]);
  if (path === "featureGates") return Object.keys(after).length > 0 ? [path] : [];
  return [...keys].flatMap((key) => changedPaths(before[key], after[key], path === "" ? key : `${path}.${key}`));
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

const FIELDS_OF_FLAGS = `
  bind-address bindAddress
  bind-address-hard-fail bindAddressHardFail
  cluster-cidr detectLocal.clusterCIDRs
  compatibility compatibility
  config-sync-period configSyncPeriodMs
  conntrack-max-per-core conntrack.maxPerCore
  conntrack-min conntrack.min
  conntrack-tcp-be-liberal conntrack.tcpBeLiberal
  conntrack-tcp-timeout-close-wait conntrack.tcpCloseWaitTimeoutMs
  conntrack-tcp-timeout-established conntrack.tcpEstablishedTimeoutMs
  conntrack-udp-timeout conntrack.udpTimeoutMs
  conntrack-udp-timeout-stream conntrack.udpStreamTimeoutMs
  detect-local-mode detectLocalMode
  ebpf-cgroup-root ebpf.cgroupRoot
  ebpf-hold-node-ports ebpf.holdNodePorts
  ebpf-host-namespace-only ebpf.hostNamespaceOnly
  ebpf-pin-folder ebpf.pinFolder
  ebpf-remembered-sockets ebpf.rememberedSockets
  ebpf-valid-for ebpf.validForMs
  enable-dsr winkernel.enableDSR
  feature-gates featureGates
  forward-healthcheck-vip winkernel.forwardHealthCheckVip
  healthz-bind-address healthzBindAddress
  iptables-localhost-nodeports iptables.localhostNodePorts
  iptables-masquerade-bit iptables.masqueradeBit
  iptables-min-sync-period minSyncPeriodMs
  iptables-sync-period syncPeriodMs
  ipvs-exclude-cidrs ipvs.excludeCIDRs
  ipvs-min-sync-period minSyncPeriodMs
  ipvs-scheduler ipvs.scheduler
  ipvs-strict-arp ipvs.strictARP
  ipvs-sync-period syncPeriodMs
  ipvs-tcp-timeout ipvs.tcpTimeoutMs
  ipvs-tcpfin-timeout ipvs.tcpFinTimeoutMs
  ipvs-udp-timeout ipvs.udpTimeoutMs
  kube-api-burst clientConnection.burst
  kube-api-content-type clientConnection.contentType
  kube-api-qps clientConnection.qps
  kubeconfig clientConnection.kubeconfig
  log-flush-frequency logging.flushFrequencyMs
  log-json-info-buffer-size logging.options.json.infoBufferSize.text logging.options.json.infoBufferSize.bytes
  log-json-split-stream logging.options.json.splitStream
  log-text-info-buffer-size logging.options.text.infoBufferSize.text logging.options.text.infoBufferSize.bytes
  log-text-split-stream logging.options.text.splitStream
  logging-format logging.format
  masquerade-all masqueradeAll
  metrics-bind-address metricsBindAddress
  network-name winkernel.networkName
  nftables-layout nftables.layout
  nodeport-addresses nodePortAddresses
  oom-score-adj oomScoreAdj
  pod-bridge-interface detectLocal.bridgeInterface
  pod-interface-name-prefix detectLocal.interfaceNamePrefix
  profiling enableProfiling
  proxy-mode mode
  proxy-port-range userspace.portRange
  root-hnsendpoint-name winkernel.rootHnsEndpointName
  show-hidden-metrics-for-version showHiddenMetricsForVersion
  source-vip winkernel.sourceVip
  udp-timeout userspace.udpIdleTimeoutMs
  userspace-drain-timeout userspace.drainTimeoutMs
  userspace-rules userspace.rules
  v logging.verbosity
  vmodule logging.vmodule
  windows-priorityclass windowsPriorityClass
`;

describe("flags that kube-proxy no longer has", () => {
  it("are named with the release since which", () => {
    for (const [arg, hint] of [
      ["--logtostderr", /^kube-proxy has no --logtostderr since v1\.26\. Lines go to standard error/],
      ["--log_dir=/var/log", /^kube-proxy has no --log_dir since v1\.26/],
      ["--cleanup-ipvs=false", /since v1\.21\. --cleanup does it always/],
      ["--resource-container=", /since v1\.16/],
      ["--cleanup-iptables", /since v1\.15\. It is --cleanup now/],
      ["--conntrack-max=1", /since v1\.15\. Use --conntrack-min and --conntrack-max-per-core/],
    ] as const) {
      assert.throws(
        () => parseCommandLine([arg]),
        (error) => error instanceof UsageError && hint.test(error.hint ?? ""),
        arg,
      );
    }
  });
});
