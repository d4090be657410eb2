import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { shortestSyncPeriodMs } from "../../../agent/settings/defaults.ts";
import { encodeYaml } from "../../../agent/settings/v1alpha1-encode.ts";
import { CommandError } from "../output.ts";
import { parseCommandLine } from "./command-line.ts";
import { type CompletedOptions, completeOptions, requireConfig, requireLogging } from "./complete.ts";

const HEAD = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";

/** Completes a command line; `file` is the body of the file that `--config=FILE` reads. */
async function complete(args: readonly string[], file?: string): Promise<CompletedOptions> {
  const line = parseCommandLine(args);
  assert.ok(line.kind === "run");
  return await completeOptions(line.flags, async (path) => {
    if (file !== undefined && path === "FILE") return HEAD + file;
    throw Object.assign(new Error(`ENOENT: ${path}`), { code: path === "DIR" ? "EISDIR" : "ENOENT" });
  });
}

const failureOf = async (args: readonly string[], file?: string): Promise<string> => {
  try {
    const options = await complete(args, file);
    requireLogging(options);
    requireConfig(options);
  } catch (error) {
    assert.ok(error instanceof CommandError);
    return error.message;
  }
  return "";
};

describe("completeOptions without a file", () => {
  it("gives the defaults of Linux", async () => {
    const { config, notices, actions } = await complete([]);
    assert.deepEqual([config.mode, config.detectLocalMode, config.syncPeriodMs], ["iptables", "ClusterCIDR", 30_000]);
    const using = { level: "info", message: "Using iptables proxy", facts: {} };
    assert.deepEqual(notices[0], using);
    assert.deepEqual([notices[1]?.level, notices.length], ["warning", 2]);
    assert.match(notices[1]?.message ?? "", /mode is not set.* iptables .* nftables from Kubernetes v1\.40/);
    assert.deepEqual((await complete(["--proxy-mode=iptables"])).notices, []);
    assert.deepEqual((await complete(["--compatibility=v1.36"])).notices, [using]);
    assert.deepEqual(actions, {
      cleanup: false,
      initOnly: false,
      writeConfigTo: "",
      configFile: "",
      master: "",
      manifests: "",
      inspectSocket: "",
      startupTaint: "",
      healthzService: "",
      inspectBindAddress: "",
    });
  });

  it("puts flags into their fields", async () => {
    const { config } = await complete([
      "--proxy-mode=nftables",
      "--masquerade-all",
      "--conntrack-udp-timeout=90s",
      "--cluster-cidr=10.0.0.0/8,fd00::/8",
      "--kube-api-qps=0.5",
      "--feature-gates=AllAlpha=true",
    ]);
    assert.deepEqual(
      [config.mode, config.masqueradeAll, config.conntrack.udpTimeoutMs, config.nodePortAddresses],
      ["nftables", true, 90_000, ["primary"]],
    );
    assert.deepEqual(config.detectLocal.clusterCIDRs, ["10.0.0.0/8", "fd00::/8"]);
    assert.deepEqual([config.clientConnection.qps, config.featureGates], [0.5, { AllAlpha: true }]);
  });

  it("lets the period flags act by mode, wherever the mode stands", async () => {
    const periods = async (...args: readonly string[]) => {
      const { config } = await complete(args);
      return [config.syncPeriodMs, config.minSyncPeriodMs];
    };
    const all = [
      "--iptables-sync-period=2s",
      "--iptables-min-sync-period=3s",
      "--ipvs-sync-period=4s",
      "--ipvs-min-sync-period=5s",
    ];
    assert.deepEqual(await periods(...all), [2000, 3000]);
    assert.deepEqual(await periods(...all, "--proxy-mode=nftables"), [2000, 3000]);
    assert.deepEqual(await periods(...all, "--proxy-mode=ipvs"), [4000, 5000]);
    assert.deepEqual(await periods("--proxy-mode=ipvs"), [30_000, 1000]);
  });

  it("keeps nftables' own masquerade bit", async () => {
    const { config } = await complete(["--proxy-mode=nftables", "--iptables-masquerade-bit=3"]);
    assert.deepEqual([config.iptables.masqueradeBit, config.nftables.masqueradeBit], [3, 14]);
  });

  it("fills in missing ports, and takes port 0 for no server", async () => {
    const addresses = async (...args: readonly string[]) => {
      const { config } = await complete(args);
      return [config.healthzBindAddress, config.metricsBindAddress];
    };
    assert.deepEqual(await addresses("--healthz-bind-address=1.2.3.4", "--metrics-bind-address=::1"), [
      "1.2.3.4:10256",
      "[::1]:10249",
    ]);
    assert.deepEqual(await addresses("--healthz-bind-address=1.2.3.4", "--healthz-port=99"), [
      "1.2.3.4:99",
      "127.0.0.1:10249",
    ]);
    assert.deepEqual(await addresses("--healthz-port=9999"), ["0.0.0.0:10256", "127.0.0.1:10249"]);
    assert.deepEqual((await addresses("--healthz-port=0"))[0], "");
    assert.equal(
      await failureOf(["--metrics-port=0"]),
      'failed validate: KubeProxyConfiguration.MetricsBindAddress: Invalid value: "": must be IP:port',
    );
  });

  it("leaves ports alone when the configuration is only written", async () => {
    const { config, actions } = await complete(["--write-config-to=out", "--healthz-port=0"]);
    assert.deepEqual([config.healthzBindAddress, actions.writeConfigTo], ["0.0.0.0:10256", "out"]);
    assert.equal(
      await failureOf(["--write-config-to=out", "--healthz-bind-address=1.2.3.4"]),
      'failed validate: KubeProxyConfiguration.HealthzBindAddress: Invalid value: "1.2.3.4": must be IP:port',
    );
  });

  it("shows resolved values in the snapshot of flags", async () => {
    const snapshot = new Map(
      (await complete(["--proxy-mode=nftables", "--healthz-bind-address=1.2.3.4", "-v3"])).flagSnapshot,
    );
    assert.deepEqual(
      [
        "proxy-mode",
        "detect-local-mode",
        "healthz-bind-address",
        "nodeport-addresses",
        "v",
        "help",
        "metrics-port",
      ].map((name) => snapshot.get(name)),
      ["nftables", "ClusterCIDR", "1.2.3.4:10256", "[primary]", "3", "false", "10249"],
    );
    assert.deepEqual([...snapshot.keys()], [...snapshot.keys()].sort());
  });

  it("refuses an explicitly empty cluster CIDR", async () => {
    assert.match(await failureOf(["--cluster-cidr="]), /^failed validate: .*ClusterCIDRs\[0\]: Invalid value: ""/);
  });
});

describe("completeOptions with a file", () => {
  it("drops the other flags, and names them", async () => {
    const { config, notices, flagSnapshot, actions } = await complete(
      [
        "--config=FILE",
        "--proxy-mode=ipvs",
        "--feature-gates=Foo=true",
        "--kubeconfig=k",
        "--master=m",
        "--manifests=d",
        "--cleanup",
        "--metrics-port=0",
      ],
      "mode: iptables\n",
    );
    assert.deepEqual([config.mode, config.featureGates, config.clientConnection.kubeconfig], ["iptables", {}, ""]);
    assert.equal(config.metricsBindAddress, "127.0.0.1:10249");
    assert.deepEqual(
      notices.map(({ facts }) => facts.flags),
      [["--feature-gates", "--kubeconfig", "--metrics-port", "--proxy-mode"]],
    );
    assert.deepEqual(
      [actions.master, actions.manifests, actions.cleanup, actions.configFile],
      ["m", "d", true, "FILE"],
    );
    assert.equal(new Map(flagSnapshot).get("proxy-mode"), "ipvs");
  });

  it("lets the logging flags that were given win, and puts their vmodule first", async () => {
    const { config } = await complete(
      ["--config=FILE", "-v=5", "--vmodule=a=1"],
      "logging: {verbosity: 2, flushFrequency: 7s, format: text, vmodule: [{filePattern: b, verbosity: 2}]}\n",
    );
    assert.deepEqual([config.logging.verbosity, config.logging.flushFrequencyMs], [5, 7000]);
    assert.deepEqual(
      config.logging.vmodule.map((item) => item.filePattern),
      ["a", "b"],
    );
  });

  it("lets the host name override win, trimmed and in lower case", async () => {
    const name = async (...args: readonly string[]) =>
      (await complete(["--config=FILE", ...args], "hostnameOverride: File\n")).config.hostnameOverride;
    assert.equal(await name("--hostname-override= Node-A "), "node-a");
    assert.equal(await name("--hostname-override="), "File");
    assert.equal(await failureOf(["--hostname-override= "]), "failed complete: empty hostname-override is invalid");
  });

  it("goes on leniently and says so", async () => {
    const { notices } = await complete(["--config=FILE"], "mode: ipvs\nbogus: 1\n");
    assert.deepEqual(notices, [
      {
        level: "info",
        message: "Using lenient decoding as strict decoding failed",
        facts: { err: 'strict decoding error: unknown field "bogus"' },
      },
    ]);
  });

  it("takes a packet path of ebpf mode that has gone, and says once what is used", async () => {
    for (const packetPath of ["Tcx", "tcx"]) {
      const file = `mode: ebpf\nebpf:\n  packetPath: ${packetPath}\n  packetInterfaces: [eth0]\n`;
      const { notices } = await complete(["--config=FILE"], file);
      const message = "ebpf.packetPath: Tcx has been removed: packets of other machines take the nftables rules";
      assert.deepEqual(notices, [{ level: "warning", message, facts: {} }]);
    }
    const { notices } = await complete(["--config=FILE"], "mode: ebpf\nebpf: { packetPath: Nftables }\n");
    assert.deepEqual(notices, []);
  });

  it("takes the form of loopback node ports that has gone, and names what replaces it", async () => {
    for (const mode of ["nftables", "ebpf"]) {
      const file = `mode: ${mode}\nnftables:\n  localhostNodePorts: Extended\n`;
      const { notices } = await complete(["--config=FILE"], file);
      assert.equal(notices.length, 1);
      assert.match(
        notices[0]?.message ?? "",
        /Extended has been removed: the feature gate KubeProxyNFTablesLocalhostNodePorts/,
      );
    }
    const { notices } = await complete(
      ["--config=FILE"],
      "mode: nftables\nnftables: { localhostNodePorts: Upstream }\n",
    );
    assert.deepEqual(notices, []);
  });

  it("fails on files that cannot be read or decoded", async () => {
    assert.equal(await failureOf(["--config=nope"]), "failed complete: open nope: no such file or directory");
    assert.equal(await failureOf(["--config=DIR"]), "failed complete: read DIR: is a directory");
    assert.equal(
      await failureOf(["--config=FILE"], "mode: 5\n"),
      "failed complete: failed to decode: json: cannot unmarshal number into Go struct field KubeProxyConfiguration.mode of type v1alpha1.ProxyMode",
    );
  });

  it("applies the file's gates before logging is checked", async () => {
    const file = "featureGates: {LoggingAlphaOptions: true}\nlogging: {options: {text: {splitStream: true}}}\n";
    assert.equal(await failureOf(["--config=FILE"], file), "");
    assert.equal(
      await failureOf(["--log-text-split-stream"]),
      "initialize logging: logging.options.text.splitStream: Forbidden: Feature LoggingAlphaOptions is disabled",
    );
  });

  it("resolves its own output to itself", async () => {
    const first = (await complete(["--config=FILE"], "mode: nftables\nclusterCIDR: 10.0.0.0/8\n")).config;
    const text = (await encodeYaml(first)).replace(/^(apiVersion|kind): .*\n/gm, "");
    assert.deepEqual((await complete(["--config=FILE"], text)).config, first);
  });
});

describe("completeOptions and feature gates", () => {
  it("fails on unknown and locked gates", async () => {
    assert.equal(await failureOf(["--feature-gates=Foo=true"]), "failed complete: unrecognized feature gate: Foo");
    assert.equal(
      await failureOf(["--feature-gates=MultiCIDRServiceAllocator=false"]),
      "failed complete: cannot set feature gate MultiCIDRServiceAllocator to false, feature is locked to true",
    );
  });

  it("warns of gates that are GA", async () => {
    const { notices, gates } = await complete(["--proxy-mode=ipvs", "--feature-gates=AllowServiceExternalIPs=false"]);
    assert.equal(gates.isEnabled("AllowServiceExternalIPs"), false);
    assert.deepEqual(notices, [
      {
        level: "warning",
        message: "Warning: setting GA feature gate. It will be removed in a future release.",
        facts: { featureGate: "AllowServiceExternalIPs", value: false },
      },
    ]);
  });
});

describe("the shortest time between two syncs", () => {
  const shortest = async (args: readonly string[], file?: string) => {
    const options = await complete(args, file);
    return shortestSyncPeriodMs(requireConfig(options), options.isMinSyncPeriodSet);
  };
  it("is what the user chose, upstream's default included", async () => {
    const file = "mode: nftables\nnftables: {minSyncPeriod: 1s}\n";
    assert.equal(await shortest(["--config=FILE"], file), 1000);
    assert.equal(await shortest(["--proxy-mode=nftables", "--iptables-min-sync-period=1s"]), 1000);
    assert.equal(await shortest(["--iptables-min-sync-period=1s"]), 1000);
    assert.equal(await shortest(["--config=FILE"], "mode: iptables\niptables: {minSyncPeriod: 1s}\n"), 1000);
  });

  it("is short in nftables and iptables mode when it was not chosen, and upstream's otherwise", async () => {
    assert.equal(await shortest(["--proxy-mode=nftables"]), 1);
    assert.equal(await shortest(["--config=FILE"], "mode: nftables\niptables: {minSyncPeriod: 3s}\n"), 1);
    assert.equal(await shortest([]), 1);
    assert.equal(await shortest(["--config=FILE"], "mode: iptables\niptables: {minSyncPeriod: 0s}\n"), 1);
    assert.equal(await shortest(["--config=FILE"], "mode: userspace\n"), 1000);
  });
});

describe("flags beside a file", () => {
  const idle = async (...args: readonly string[]): Promise<unknown> => {
    const { notices } = await complete(["--config=FILE", ...args], "mode: iptables\n");
    return notices
      .filter(({ message }) => /without effect/.test(message))
      .map(({ level, facts }) => [level, facts.flags]);
  };

  it("are named once if they have no effect", async () => {
    assert.deepEqual(await idle("--metrics-bind-address=0.0.0.0", "--compatibility=v1.36", "--proxy-mode=nftables"), [
      ["warning", ["--compatibility", "--metrics-bind-address", "--proxy-mode"]],
    ]);
    assert.deepEqual(await idle("--kubeconfig=/x", "--metrics-port=1", "--kubeconfig=/y"), [
      ["warning", ["--kubeconfig", "--metrics-port"]],
    ]);
  });

  it("are silent if they count, as on a stock kubeadm node", async () => {
    assert.deepEqual(await idle("--hostname-override=node-a"), []);
    assert.deepEqual(
      await idle(
        "-v=4",
        "--vmodule=a=1",
        "--logging-format=json",
        "--master=https://a",
        "--inspect-socket=/x",
        "--init-only",
      ),
      [],
    );
    const { notices } = await complete(["--config=FILE", "--hostname-override=node-a"], "mode: iptables\n");
    assert.deepEqual(notices, []);
    assert.deepEqual((await complete(["--metrics-bind-address=0.0.0.0", "--proxy-mode=iptables"])).notices, []);
  });
});

describe("a node name that is a variable", () => {
  for (const name of ["$(NODE_NAME)", `\${NODE_NAME}`, "$NODE_NAME", "%NODE_NAME%"]) {
    it(`is named: ${name}`, async () => {
      for (const [args, file] of [
        [[`--hostname-override=${name}`, "--proxy-mode=iptables"], undefined],
        [["--config=FILE"], `mode: iptables\nhostnameOverride: "${name}"\n`],
      ] as const) {
        const { notices } = await complete(args, file);
        assert.match(
          notices.map(({ level, message }) => `${level}: ${message}`).join(),
          /^warning: The node's name is a variable/,
        );
      }
    });
  }
});
