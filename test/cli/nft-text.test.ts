/** `--dump` of what people paste: nft's text with handles, cut, of other programs, and of iptables-nft. */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { diff } from "../../src/tools/cli/diff.ts";
import { explain } from "../../src/tools/cli/explain.ts";
import { proveCommand } from "../../src/tools/cli/prove.ts";
import { render } from "../../src/tools/cli/render.ts";
import { trace } from "../../src/tools/cli/trace.ts";
import { examplesAsJson, runCommand } from "./run-command.ts";

const EXAMPLES = examplesAsJson();

/** As kubeadm's first listing shows it, with handles. */
const KUBE_PROXY = `table ip kube-proxy { # handle 18
	comment "rules for kube-proxy"
	map service-ips { # handle 50
		type ipv4_addr . inet_proto . inet_service : verdict
		comment "ClusterIP, ExternalIP and LoadBalancer IP traffic"
		elements = { 10.255.0.10 . udp . 53 : goto service-FY5PMXPG-kube-system/kube-dns/udp/dns,
			     10.255.36.158 . tcp . 8000 : goto service-MJTK4JPM-home/http/tcp/main }
	}

	chain endpoint-ZRZOUO6E-home/http/tcp/main__10.244.1.71/8000 { # handle 61
		ip saddr 10.244.1.71 jump mark-for-masquerade # handle 139
		meta l4proto tcp dnat to 10.244.1.71:8000 # handle 140
	}

	chain endpoint-6JPGGG4H-home/http/tcp/main__10.244.1.72/8000 { # handle 78
		ip saddr 10.244.1.72 jump mark-for-masquerade # handle 141
		meta l4proto tcp dnat to 10.244.1.72:8000 # handle 142
	}

	chain service-MJTK4JPM-home/http/tcp/main { # handle 62
		ip daddr 10.255.36.158 tcp dport 8000 ip saddr != 10.244.0.0/16 jump mark-for-masquerade # handle 136
		numgen random mod 2 vmap { 0 : goto endpoint-ZRZOUO6E-home/http/tcp/main__10.244.1.71/8000, 1 : goto endpoint-6JPGGG4H-home/http/tcp/main__10.244.1.72/8000 } # handle 138
	}

	chain mark-for-masquerade { # handle 5
		meta mark set meta mark | 0x00004000 # handle 6
	}

	chain nat-prerouting { # handle 10
		type nat hook prerouting priority dstnat; policy accept;
		ip daddr . meta l4proto . th dport vmap @service-ips # handle 52
	}
`;
const PACKET = ["--from", "10.244.3.4", "--to", "10.255.36.158:8000", "--local", "10.128.0.25", "--dump", "-"];
const BOTH = [71, 72].map((last) => `50.0 %  sent to 10.244.1.${last}:8000, from 10.244.3.4 (kept)`);

async function outcomes(text: string, packet: readonly string[] = PACKET) {
  const { status, out, err } = await runCommand(trace, packet, text);
  assert.equal(status, 0, err);
  const notes = [...out.matchAll(/^Note: +(.*)$/gm)].map(([, note]) => note);
  return { notes, ends: out.split("What becomes of it:\n")[1]?.split("\n\n")[0]?.split("\n"), out };
}

test("trace walks a listing with handles, and one that is cut, which it says", async () => {
  const whole = await outcomes(`root@node:~# nft -a list ruleset\n${KUBE_PROXY}}\n`);
  assert.deepEqual([whole.notes, whole.ends?.map((line) => line.trim())], [[], BOTH]);
  const cut = await outcomes(`${KUBE_PROXY}\n....\n`);
  assert.deepEqual(cut.ends, whole.ends);
  assert.match(
    cut.notes.join("\n"),
    /^line 34: "\.\.\.\." is not understood, .*\nline 35: .* does not end: it is cut there$/,
  );
});

test("in the middle of a chain, what follows is not known", async () => {
  const { out } = await outcomes(KUBE_PROXY.slice(0, KUBE_PROXY.indexOf("dnat to 10.244.1.72") + 20));
  assert.match(
    out,
    /not known: there is no chain service-MJTK4JPM|What becomes of it:\n.*sent to 10\.255\.36\.158:8000/,
  );
  const rule = KUBE_PROXY.replace("\t\tmeta l4proto tcp dnat to 10.244.1.71:8000", "\t\tweird 5 drop");
  assert.match((await outcomes(`${rule}}\n`)).out, /if line 12: weird 5 drop holds:/);
});

test("tables of iptables-nft: comments match, and the output of iptables-save is asked for", async () => {
  const rule = 'xt match "comment" counter packets 0 bytes 0 dnat to 192.168.77.2:53';
  const chain = (rule: string) =>
    `table ip nat {\n\tchain PREROUTING {\n\t\ttype nat hook prerouting priority dstnat; policy accept;\n\t\t${rule}\n\t}\n}\n`;
  const packet = ["--from", "192.168.3.4", "--to", "10.96.0.10:53/udp", "--local", "192.168.77.1", "--dump", "-"];
  for (const form of [
    rule,
    rule.replace('xt match "comment"', "# xt_comment"),
    rule.replace('xt match "comment"', ""),
  ]) {
    const { ends, notes } = await outcomes(chain(form), packet);
    assert.deepEqual(ends, ["  100.0 %  sent to 192.168.77.2:53, from 192.168.3.4 (kept)"]);
    assert.deepEqual(notes, [
      "nft does not print all that iptables has in ip nat: give the output of iptables-save, too",
    ]);
  }
  const { out } = await outcomes(chain(rule.replace("comment", "set")), packet);
  assert.match(out, /if xt match "set" holds:/);
});

test("prove reads it, names the line that it does not understand, and proves nothing of a part", async () => {
  const plan = await runCommand(
    render,
    ["-f", "-", "--hostname-override", "node-a", "--mode", "nftables", "--family", "ipv4"],
    EXAMPLES,
  );
  const proved = async (text: string) => {
    const folder = mkdtempSync(join(tmpdir(), "kpts-nft-text-"));
    const file = join(folder, "nft.dump");
    try {
      writeFileSync(file, text);
      const argv = ["-f", "-", "--node", "node-a", "--family", "ipv4", "--dump", file];
      return await runCommand(proveCommand, argv, EXAMPLES);
    } finally {
      rmSync(folder, { recursive: true });
    }
  };
  assert.match((await proved(plan.out)).out, /the rules treat every packet as the Services ask/);
  const other = plan.out.replace(/\t\t(?=ip daddr @nodeport-ips)/, "\t\tweird 5 ");
  const line = other.slice(0, other.indexOf("weird 5")).split("\n").length;
  assert.match((await proved(other)).out, new RegExp(`cannot be proved: line ${line}: weird 5 .* is not understood`));
  const half = await proved(plan.out.slice(0, plan.out.length / 2));
  assert.match(half.out, /cannot be proved: not all rules are known: line \d+: /);
});

test("explain finds an address with its port where it finds the address, and names in any table", async () => {
  const explained = async (what: string, text: string) => await runCommand(explain, [what, "--dump", "-"], text);
  const address = await explained("10.255.36.158", KUBE_PROXY);
  assert.match(
    address.out,
    /is for home\/http:main\.\n\nmap service-ips in ip kube-proxy\n {2}10\.255\.36\.158 \. tcp \. 8000 : goto/,
  );
  for (const end of ["10.255.36.158:8000", "10.255.36.158:8000/tcp"]) {
    const { out } = await explained(end, KUBE_PROXY);
    assert.equal(out.slice(out.indexOf("\n")), address.out.slice(address.out.indexOf("\n")));
  }
  assert.match(
    (await explained("10.255.36.158:9", KUBE_PROXY)).err,
    /nothing in the dumps is named 10\.255\.36\.158:9/,
  );
  const saved =
    "*nat\n:KUBE-SERVICES - [0:0]\n-A KUBE-SERVICES -d 10.0.0.1/32 -p tcp -m tcp --dport 80 -j KUBE-SVC-A\nCOMMIT\n";
  assert.match((await explained("10.0.0.1:80", saved)).out, /--dport 80 -j KUBE-SVC-A/);
  const other = "table ip nat {\n\tchain KUBE-SVC-A {\n\t\tcounter packets 1 bytes 2 jump KUBE-SEP-B\n\t}\n}\n";
  assert.match((await explained("KUBE-SVC-A", other)).out, /chain KUBE-SVC-A in ip nat\n {2}jump KUBE-SEP-B/);
});

test("a terse listing, without elements, is named, as text and as JSON; one cut in the middle is refused by diff", async () => {
  const objects = ["-f", "-", "--node", "node-a", "--mode", "nftables", "--family", "ipv4"];
  const text = (await runCommand(render, objects, EXAMPLES)).out;
  const terse = text.replaceAll(/^\s+elements = \{[^}]*\}\n/gm, "");
  assert.notEqual(terse, text);
  const dir = mkdtempSync(join(tmpdir(), "kpts-terse-"));
  try {
    const file = (name: string, content: string): string => {
      writeFileSync(join(dir, name), content);
      return join(dir, name);
    };
    const { out: json } = await runCommand(render, [...objects, "-o", "json"], EXAMPLES);
    const named = /no set or map has an element: nft -t \(terse\) leaves them out/;
    const elements = (key: string, value: unknown): unknown => (key === "elem" ? undefined : value);
    for (const dump of [
      file("terse.txt", terse),
      file("terse.json", JSON.stringify(JSON.parse(json, (key, value) => elements(key, value)))),
    ]) {
      const packet = ["--from", "10.200.0.9", "--to", "10.96.0.10:80", "--dump", dump];
      assert.match((await runCommand(trace, packet)).out, named);
      const proof = await runCommand(
        proveCommand,
        [...objects.filter((one) => !/nftables|--mode/.test(one)), "--as", "nftables", "--dump", dump],
        EXAMPLES,
      );
      assert.match(proof.out, named);
      assert.doesNotMatch(
        (await runCommand(diff, [...objects, "--dump", file("whole.txt", text)], EXAMPLES)).err,
        named,
      );
      assert.match((await runCommand(diff, [...objects, "--dump", dump], EXAMPLES)).err, named);
    }
    const cut = file("cut.txt", text.split("\n").slice(0, 150).join("\n"));
    const refused = await runCommand(diff, [...objects, "--dump", cut], EXAMPLES);
    assert.equal(refused.status, 2);
    assert.match(refused.err, /the listing ends, .*: it is cut there/);
  } finally {
    rmSync(dir, { recursive: true });
  }
});
