import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { applyPlatformDefaults, resolveDocument } from "./defaults.ts";
import { decodeConfiguration } from "./v1alpha1-decode.ts";
import { checkConfig, configErrors } from "./validate.ts";

const HEAD = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";
const config = (body: string) => applyPlatformDefaults(resolveDocument(decodeConfiguration(HEAD + body).document));

/** The joined errors of a file, without the prefix that all paths share. */
const errors = (body: string): string => {
  const checked = checkConfig(config(body));
  return checked.ok ? "" : checked.message.replaceAll("KubeProxyConfiguration.", "");
};

const CONNTRACK = "KubeProxyLinuxConfiguration.KubeProxyConntrackConfiguration";
const PAIR = "must be a either a single CIDR or dual-stack pair of CIDRs (e.g. [10.100.0.0/16, fde4:8dba:82e1::/48]";
const CIDR_BLOCK = "must be a valid CIDR block (e.g. 10.100.0.0/16 or fde4:8dba:82e1::/48)";

const WORDS = "must be a valid CIDR or one of the keywords 'primary', 'localhost', 'all'";

describe("checkConfig", () => {
  it("narrows the modes of a right configuration", () => {
    const checked = checkConfig(config("mode: ipvs"));
    assert.ok(checked.ok);
    assert.deepEqual([checked.config.mode, checked.config.detectLocalMode], ["ipvs", "ClusterCIDR"]);
  });

  it("refuses single wrong settings with upstream's path and words", () => {
    const cases: readonly (readonly [string, string])[] = [
      ["featureGates: {Foo: true}", 'featureGates: Invalid value: {"Foo":true}: unrecognized feature gate: Foo'],
      [
        "iptables: {masqueradeBit: 32}",
        "KubeProxyIPTablesConfiguration.MasqueradeBit: Invalid value: 32: must be within the range [0, 31]",
      ],
      [
        "mode: nftables\niptables: {masqueradeBit: -1}",
        "KubeProxyIPTablesConfiguration.MasqueradeBit: Invalid value: -1: must be within the range [0, 31]",
      ],
      [
        "mode: nftables\nnftables: {masqueradeBit: 99}",
        "KubeProxyNFTablesConfiguration.MasqueradeBit: Invalid value: 99: must be within the range [0, 31]",
      ],
      ["nftables: {masqueradeBit: 99}", ""],
      [
        "mode: ipvs\nipvs: {tcpTimeout: -1s}",
        'KubeProxyIPVSConfiguration.TCPTimeout: Invalid value: "-1s": must be greater than or equal to 0',
      ],
      [
        "mode: ipvs\nipvs: {excludeCIDRs: [10.0.0.0/8, x]}",
        'KubeProxyIPVSConfiguration.ExcludeCidrs[1]: Invalid value: "x": must be a valid CIDR',
      ],
      ["ipvs: {excludeCIDRs: [x], udpTimeout: -1s}", ""],
      ["conntrack: {min: -1}", `${CONNTRACK}.Min: Invalid value: -1: must be greater than or equal to 0`],
      [
        "conntrack: {udpStreamTimeout: -90s}",
        `${CONNTRACK}.UDPStreamTimeout: Invalid value: "-1m30s": must be greater than or equal to 0`,
      ],
      [
        "windowsPriorityClass: high",
        'WindowsPriorityClass: Unsupported value: "high": supported values: "IDLE_PRIORITY_CLASS", "BELOW_NORMAL_PRIORITY_CLASS", "NORMAL_PRIORITY_CLASS", "ABOVE_NORMAL_PRIORITY_CLASS", "HIGH_PRIORITY_CLASS", "REALTIME_PRIORITY_CLASS"',
      ],
      ["windowsPriorityClass: REALTIME_PRIORITY_CLASS", ""],
      [
        "oomScoreAdj: 1001",
        "KubeProxyLinuxConfiguration.OOMScoreAdj: Invalid value: 1001: must be within the range [-1000, 1000]",
      ],
      [
        "mode: winuserspace",
        'Mode.ProxyMode: Invalid value: "winuserspace": must be iptables, ipvs, nftables or blank (blank means the best-available proxy [currently iptables]); here also userspace or ebpf',
      ],
      ["mode: userspace\nportRange: 8000-8100\nudpIdleTimeout: 1s", ""],
      [
        "mode: userspace\nportRange: 10-5",
        'PortRange: Invalid value: "10-5": must be a valid port range (e.g. 300-2000): the last port, 5, is below the first, 10',
      ],
      ["portRange: 10-5", ""],
      ["mode: userspace\nudpIdleTimeout: -1s", 'UDPIdleTimeout: Invalid value: "-1s": must be greater than 0'],
      [
        "mode: userspace\nuserspace: {drainTimeout: -1s}",
        'KubeProxyUserspaceConfiguration.DrainTimeout: Invalid value: "-1s": must be greater than or equal to 0',
      ],
      [
        "userspace: {rules: ipfw}",
        'KubeProxyUserspaceConfiguration.Rules: Unsupported value: "ipfw": supported values: "iptables", "none"',
      ],
      [
        "mode: IPVS",
        'Mode.ProxyMode: Invalid value: "IPVS": must be iptables, ipvs, nftables or blank (blank means the best-available proxy [currently iptables]); here also userspace or ebpf',
      ],
      [
        "clientConnection: {burst: -5}",
        "ClientConnection.Burst: Invalid value: -5: must be greater than or equal to 0",
      ],
      ["configSyncPeriod: -1s", 'ConfigSyncPeriod: Invalid value: "-1s": must be greater than 0'],
      [
        "iptables: {minSyncPeriod: 1m}",
        'SyncPeriod: Invalid value: "1m0s": must be greater than or equal to MinSyncPeriod',
      ],
      ["iptables: {minSyncPeriod: -1s}", 'MinSyncPeriod: Invalid value: "-1s": must be greater than or equal to 0'],
      ["bindAddress: x", 'BindAddress: Invalid value: "x": not a valid textual representation of an IP address'],
      ["healthzBindAddress: nowhere", 'HealthzBindAddress: Invalid value: "nowhere": must be IP:port'],
      ["healthzBindAddress: host:80", 'HealthzBindAddress: Invalid value: "host": must be a valid IP'],
      ["metricsBindAddress: 1.2.3.4:0", 'MetricsBindAddress: Invalid value: "0": must be a valid port'],
      ["metricsBindAddress: '[::1]:65536'", 'MetricsBindAddress: Invalid value: "65536": must be a valid port'],
      [
        "compatibility: v1.36\nnodePortAddresses: [a, 10.0.0.0/8]",
        'NodePortAddresses[0]: Invalid value: "a": must be a valid CIDR',
      ],
      [
        "compatibility: v1.36\nnodePortAddresses: [10.0.0.0/8, primary, a]",
        `NodePortAddresses[1]: Invalid value: "primary": can't use both 'primary' and CIDRs`,
      ],
      ["nodePortAddresses: [a, 10.0.0.0/8]", `NodePortAddresses[0]: Invalid value: "a": ${WORDS}`],
      ["nodePortAddresses: [primary, primary]", 'NodePortAddresses[1]: Duplicate value: "primary"'],
      [
        'nodePortAddresses: [Primary, 1.2.3.4, ""]',
        `[NodePortAddresses[0]: Invalid value: "Primary": ${WORDS}, NodePortAddresses[1]: Invalid value: "1.2.3.4": ${WORDS}, NodePortAddresses[2]: Invalid value: "": ${WORDS}]`,
      ],
      [
        "compatibility: v1.35",
        'Compatibility: Unsupported value: "v1.35": supported values: "v1.36", "v1.37", "v1.38"',
      ],
      [
        "connections: {endTCP: All, endTCPAfter: -1s}",
        '[Connections.EndTCP: Unsupported value: "All": supported values: "Gone", "Never", Connections.EndTCPAfter: Invalid value: "-1s": must be greater than or equal to 0]',
      ],
      [
        "connections: {leaveAtMost: 101, leaveAtMostNodes: -1, leaveFor: -1s, leaveForAtMost: -2s}",
        '[Connections.LeaveAtMost: Invalid value: 101: must be 1 to 100, Connections.LeaveAtMostNodes: Invalid value: -1: must be 1 to 100, Connections.LeaveFor: Invalid value: "-1s": must be greater than 0, Connections.LeaveForAtMost: Invalid value: "-2s": must not be below LeaveFor]',
      ],
      [
        "mode: ipvs\nfeatureGates: {KubeProxyIPVS: false}",
        'Mode.ProxyMode: Invalid value: "ipvs": must be iptables, nftables or blank (blank means the best-available proxy [currently iptables]); here also userspace or ebpf',
      ],
      [
        "mode: bogus",
        'Mode.ProxyMode: Invalid value: "bogus": must be iptables, ipvs, nftables or blank (blank means the best-available proxy [currently iptables]); here also userspace or ebpf',
      ],
      [
        "compatibility: v1.36\nshowHiddenMetricsForVersion: '1.36'",
        `ShowHiddenMetricsForVersion: Invalid value: "1.36": invalid showHiddenMetricsForVersion: showHiddenMetricsForVersion: Invalid value: "1.36": must be omitted or have the value '1.35'; only the previous minor version is allowed`,
      ],
      [
        "showHiddenMetricsForVersion: '1.2'",
        `ShowHiddenMetricsForVersion: Invalid value: "1.2": invalid showHiddenMetricsForVersion: showHiddenMetricsForVersion: Invalid value: "1.2": must be omitted or have the value '1.36'; only the previous minor version is allowed`,
      ],
      [
        "detectLocalMode: foo",
        'DetectLocalMode: Unsupported value: "foo": supported values: "ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix", ""',
      ],
      [
        "detectLocalMode: BridgeInterface",
        'DetectLocalConfiguration.InterfaceName: Invalid value: "": must not be empty',
      ],
      [
        "detectLocalMode: InterfaceNamePrefix",
        'DetectLocalConfiguration.InterfacePrefix: Invalid value: "": must not be empty',
      ],
      [
        "detectLocalMode: InterfaceNamePrefix\ndetectLocal: {interfaceNamePrefix: sixteen-letters0}",
        'DetectLocalConfiguration.InterfacePrefix: Invalid value: "sixteen-letters0": must be a name that an interface can have: at most 15 characters, without blanks, slashes and colons',
      ],
      [
        "detectLocalMode: BridgeInterface\ndetectLocal: {bridgeInterface: 'br 0'}",
        'DetectLocalConfiguration.InterfaceName: Invalid value: "br 0": must be a name that an interface can have: at most 15 characters, without blanks, slashes and colons',
      ],
      ["detectLocalMode: BridgeInterface\ndetectLocal: {bridgeInterface: fifteen-letters}", ""],
      [
        "detectLocalMode: BridgeInterface\ndetectLocal: {bridgeInterface: ..}",
        'DetectLocalConfiguration.InterfaceName: Invalid value: "..": must be a name that an interface can have: at most 15 characters, without blanks, slashes and colons',
      ],
      ["detectLocalMode: InterfaceNamePrefix\ndetectLocal: {interfaceNamePrefix: ..}", ""],
      [
        "mode: ebpf\nebpf: {validFor: 59s}",
        'KubeProxyEBPFConfiguration.ValidFor: Invalid value: "59s": must be at least 1m0s',
      ],
      ["mode: ebpf\nebpf: {validFor: 1m, rememberedSockets: 1024}", ""],
      [
        "mode: ebpf\nebpf: {rememberedSockets: 0}",
        "KubeProxyEBPFConfiguration.RememberedSockets: Invalid value: 0: must be within the range [1024, 16777216]",
      ],
      ["detectLocal: {bridgeInterface: 'br 0'}", ""],
      [
        'clusterCIDR: "10.0.0.0/8, fd00::/8"',
        `DetectLocalConfiguration.ClusterCIDRs[1]: Invalid value: " fd00::/8": ${CIDR_BLOCK}`,
      ],
      [
        "clusterCIDR: 10.0.0.0/8,11.0.0.0/8",
        `DetectLocalConfiguration.ClusterCIDRs: Invalid value: ["10.0.0.0/8","11.0.0.0/8"]: ${PAIR}`,
      ],
      ["clusterCIDR: a,b,c", `DetectLocalConfiguration.ClusterCIDRs: Invalid value: ["a","b","c"]: ${PAIR}`],
      ["clusterCIDR: a,b,c\ndetectLocalMode: NodeCIDR", ""],
    ];
    for (const [body, expected] of cases) assert.equal(errors(body), expected, body);
  });

  it("accepts legal settings that look odd", () => {
    for (const body of [
      "bindAddress: 010.001.0.1",
      "nodePortAddresses: [primary]",
      "nodePortAddresses: [010.0.0.0/08]",
      "clusterCIDR: fd00::/8,10.0.0.0/8",
      "nodePortAddresses: [primary, localhost, all, 10.0.0.0/8]",
      "nodePortAddresses: [10.0.0.0/8, 10.0.0.0/8, all]",
      "featureGates: {KubeProxyIPVS: true, NFTablesNetlink: true, KubeProxyNFTablesLocalhostNodePorts: true}\nmode: ipvs",
      "compatibility: v1.36\nshowHiddenMetricsForVersion: '1.35'",
      "showHiddenMetricsForVersion: '1.36'",
      "conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s}",
      "ipvs: {scheduler: no-such-scheduler}\nmode: ipvs",
    ]) {
      assert.equal(errors(body), "", body);
    }
  });

  it("skips an empty health address but never an empty metrics address", () => {
    const draft = { ...config(""), healthzBindAddress: "", metricsBindAddress: "" };
    assert.deepEqual(configErrors(draft), [
      'KubeProxyConfiguration.MetricsBindAddress: Invalid value: "": must be IP:port',
    ]);
  });

  it("lists several errors in upstream's order", () => {
    assert.equal(
      errors("oomScoreAdj: 5000\nbindAddress: x\nmode: zz\niptables: {masqueradeBit: 40}\nlogging: {format: xml}"),
      "[KubeProxyIPTablesConfiguration.MasqueradeBit: Invalid value: 40: must be within the range [0, 31], " +
        "KubeProxyLinuxConfiguration.OOMScoreAdj: Invalid value: 5000: must be within the range [-1000, 1000], " +
        'Mode.ProxyMode: Invalid value: "zz": must be iptables, ipvs, nftables or blank (blank means the best-available proxy [currently iptables]); here also userspace or ebpf, ' +
        'BindAddress: Invalid value: "x": not a valid textual representation of an IP address, ' +
        'logging.format: Invalid value: "xml": Unsupported log format]',
    );
  });

  it("checks the logging section", () => {
    const disabled = "Forbidden: Feature LoggingAlphaOptions is disabled";
    const cases: readonly (readonly [string, string])[] = [
      ["{flushFrequency: -1s}", 'logging.flushFrequency: Invalid value: "-1s": Must be greater than zero'],
      ["{verbosity: 2147483648}", "logging.verbosity: Invalid value: 2147483648: Must be <= 2147483647"],
      [
        "{format: json, vmodule: [{filePattern: a, verbosity: 1}]}",
        "logging.vmodule: Forbidden: Only supported for text log format",
      ],
      ["{vmodule: [{verbosity: 1}]}", "logging.vmodule[0]: Required value: File pattern must not be empty"],
      [
        "{vmodule: [{filePattern: 'a=b'}]}",
        'logging.vmodule[0]: Invalid value: "a=b": File pattern must not contain equal sign or comma',
      ],
      [
        "{options: {json: {splitStream: true, infoBufferSize: 1}}}",
        `[logging.options.json.splitStream: ${disabled}, logging.options.json.infoBufferSize: ${disabled}]`,
      ],
      ["{format: json}", ""],
    ];
    for (const [logging, expected] of cases) assert.equal(errors(`logging: ${logging}`), expected, logging);
    const split = "logging: {options: {text: {splitStream: true}}}\n";
    assert.equal(errors(`${split}featureGates: {LoggingAlphaOptions: true}`), "");
    assert.equal(
      errors("logging: {format: json}\nfeatureGates: {LoggingBetaOptions: false}"),
      "logging.format: Forbidden: Log format json is disabled, see LoggingBetaOptions feature",
    );
  });
});
