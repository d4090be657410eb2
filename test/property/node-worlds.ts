/** What other programs put on every node, as they write it themselves. The node's pods have 10.180.0.0/24, the cluster's 10.180.0.0/16. */
import { type Dump, recogniseDumps } from "../../src/trace/dump/recognise.ts";

/** Rules in lines of iptables-save, by table, and tables as nft lists them. */
export interface World {
  readonly iptables?: Readonly<Record<string, string>>;
  readonly policies?: Readonly<Record<string, string>>;
  readonly nft?: string;
  /** A case in which it once was wrong. */
  readonly alsoIn?: string;
  /** Whether its rules are always behind those that are there. */
  readonly isLast?: true;
}

const KUBELET = {
  mangle: ":KUBE-IPTABLES-HINT\n:KUBE-KUBELET-CANARY",
  filter: `
-A INPUT -j KUBE-FIREWALL
-A OUTPUT -j KUBE-FIREWALL
-A KUBE-FIREWALL -m comment --comment "kubernetes firewall for dropping marked packets" -m mark --mark 0x8000/0x8000 -j DROP
-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment "block incoming localnet connections" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP`,
  nat: ":KUBE-KUBELET-CANARY\n-A KUBE-MARK-DROP -j MARK --set-xmark 0x8000/0x8000",
};

/** containerd's, with one host port. */
const PORTMAP = {
  nat: `
-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A OUTPUT -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A POSTROUTING -m comment --comment "CNI portfwd requiring masquerade" -j CNI-HOSTPORT-MASQ
-A CNI-DN-468dd58cba3917282a108 -s 10.180.0.0/24 -p tcp -m tcp --dport 8888 -j CNI-HOSTPORT-SETMARK
-A CNI-DN-468dd58cba3917282a108 -s 127.0.0.1/32 -p tcp -m tcp --dport 8888 -j CNI-HOSTPORT-SETMARK
-A CNI-DN-468dd58cba3917282a108 -p tcp -m tcp --dport 8888 -j DNAT --to-destination 10.180.0.77:80
-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \\"bridge\\" id: \\"08f719b16dccc6f5\\"" -m multiport --dports 8888 -j CNI-DN-468dd58cba3917282a108
-A CNI-HOSTPORT-MASQ -m mark --mark 0x2000/0x2000 -j MASQUERADE
-A CNI-HOSTPORT-SETMARK -m comment --comment "CNI portfwd masquerade mark" -j MARK --set-xmark 0x2000/0x2000`,
};

export const WORLDS: Readonly<Record<string, World>> = {
  kubelet: { iptables: KUBELET, alsoIn: "v1.36/node-port-addresses" },
  "containerd's portmap": { iptables: PORTMAP },
  "portmap of nft, and the bridge plugin's masquerade": {
    nft: `
table ip cni_hostport {
	comment "CNI portmap plugin"
	chain hostports {
		tcp dport 8888 dnat to 10.180.0.77:80 comment "08f719b16dccc6f5"
	}

	chain hostip_hostports {
		ip daddr 10.200.0.2 tcp dport 8889 dnat to 10.180.0.77:80 comment "08f719b16dccc6f5"
	}

	chain prerouting {
		type nat hook prerouting priority dstnat; policy accept;
		jump hostip_hostports
		jump hostports
	}

	chain output {
		type nat hook output priority -100; policy accept;
		jump hostip_hostports
		fib daddr type local jump hostports
	}

	chain masquerading {
		type nat hook postrouting priority srcnat; policy accept;
		ip saddr 10.180.0.77 ip daddr 10.180.0.77 masquerade comment "08f719b16dccc6f5"
		ip saddr 127.0.0.1 ip daddr 10.180.0.77 masquerade comment "08f719b16dccc6f5"
	}
}
table inet cni_plugins_masquerade {
	comment "Masquerading for plugins from github.com/containernetworking/plugins"
	chain masq_checks {
		comment "Masquerade traffic from certain IPs to any (non-multicast) IP outside their subnet"
		ip saddr 10.180.0.5 ip daddr != 10.180.0.0/24 masquerade comment "0d1a6b4cbd2f2c3e-9c1f, net: bridge, if: eth0, id: 08f719b16dccc6f5"
	}

	chain postrouting {
		type nat hook postrouting priority srcnat; policy accept;
		ip daddr 224.0.0.0/4 return
		ip6 daddr ff00::/8 return
		goto masq_checks
	}
}
`,
  },
  "the bridge plugin's masquerade and firewall": {
    iptables: {
      filter: `
-A FORWARD -m comment --comment "CNI firewall plugin rules" -j CNI-FORWARD
-A CNI-FORWARD -m comment --comment "CNI firewall plugin admin overrides" -j CNI-ADMIN
-A CNI-FORWARD -d 10.180.0.5/32 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A CNI-FORWARD -s 10.180.0.5/32 -j ACCEPT`,
      nat: `
-A POSTROUTING -s 10.180.0.5/32 -m comment --comment "name: \\"bridge\\" id: \\"08f719b16dccc6f5\\"" -j CNI-6f2d0b4c8a1e3f5a7b9c1d3e
-A CNI-6f2d0b4c8a1e3f5a7b9c1d3e -d 10.180.0.0/24 -m comment --comment "name: \\"bridge\\" id: \\"08f719b16dccc6f5\\"" -j ACCEPT
-A CNI-6f2d0b4c8a1e3f5a7b9c1d3e ! -d 224.0.0.0/4 -m comment --comment "name: \\"bridge\\" id: \\"08f719b16dccc6f5\\"" -j MASQUERADE`,
    },
  },
  "Docker 20, which drops what is forwarded": {
    policies: { FORWARD: "DROP" },
    iptables: {
      filter: `
-A FORWARD -j DOCKER-USER
-A FORWARD -j DOCKER-ISOLATION-STAGE-1
-A FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A FORWARD -o docker0 -j DOCKER
-A FORWARD -i docker0 ! -o docker0 -j ACCEPT
-A FORWARD -i docker0 -o docker0 -j ACCEPT
-A DOCKER-ISOLATION-STAGE-1 -i docker0 ! -o docker0 -j DOCKER-ISOLATION-STAGE-2
-A DOCKER-ISOLATION-STAGE-1 -j RETURN
-A DOCKER-ISOLATION-STAGE-2 -o docker0 -j DROP
-A DOCKER-ISOLATION-STAGE-2 -j RETURN
-A DOCKER-USER -j RETURN`,
      nat: `
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-A OUTPUT ! -d 127.0.0.0/8 -m addrtype --dst-type LOCAL -j DOCKER
-A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE
-A DOCKER -i docker0 -j RETURN
-A DOCKER ! -i docker0 -p tcp -m tcp --dport 8080 -j DNAT --to-destination 172.17.0.2:80`,
    },
  },
  "Docker 28": {
    alsoIn: "v1.37/localhost-only",
    policies: { FORWARD: "DROP" },
    iptables: {
      filter: `
-A FORWARD -j DOCKER-USER
-A FORWARD -j DOCKER-FORWARD
-A DOCKER -d 172.17.0.2/32 ! -i docker0 -o docker0 -p tcp -m tcp --dport 80 -j ACCEPT
-A DOCKER ! -i docker0 -o docker0 -j DROP
-A DOCKER-BRIDGE -o docker0 -j DOCKER
-A DOCKER-CT -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A DOCKER-FORWARD -j DOCKER-CT
-A DOCKER-FORWARD -j DOCKER-INTERNAL
-A DOCKER-FORWARD -j DOCKER-BRIDGE
-A DOCKER-FORWARD -i docker0 -j ACCEPT`,
      raw: "-A PREROUTING -d 172.17.0.2/32 ! -i docker0 -j DROP",
      nat: `
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-A OUTPUT ! -d 127.0.0.0/8 -m addrtype --dst-type LOCAL -j DOCKER
-A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE
-A DOCKER ! -i docker0 -p tcp -m tcp --dport 8080 -j DNAT --to-destination 172.17.0.2:80`,
    },
  },
  "Docker 29 by nft": {
    nft: `
table ip docker-bridges {
	map filter-forward-in-jumps {
		type ifname : verdict
		elements = { "docker0" : jump filter-forward-in__docker0 }
	}

	map nat-postrouting-out-jumps {
		type ifname : verdict
		elements = { "docker0" : jump nat-postrouting-out__docker0 }
	}

	chain filter-FORWARD {
		type filter hook forward priority filter; policy accept;
		oifname vmap @filter-forward-in-jumps
	}

	chain nat-POSTROUTING {
		type nat hook postrouting priority srcnat; policy accept;
		iifname vmap @nat-postrouting-out-jumps
	}

	chain nat-PREROUTING {
		type nat hook prerouting priority dstnat; policy accept;
		fib daddr type local counter packets 0 bytes 0 jump nat-prerouting-and-output
	}

	chain nat-OUTPUT {
		type nat hook output priority -100; policy accept;
		ip daddr != 127.0.0.0/8 fib daddr type local counter packets 0 bytes 0 jump nat-prerouting-and-output
	}

	chain nat-prerouting-and-output {
		iifname != "docker0" tcp dport 8080 counter packets 0 bytes 0 dnat to 172.17.0.2:80 comment "DNAT"
	}

	chain filter-forward-in__docker0 {
		ct state established,related counter packets 0 bytes 0 accept
		iifname "docker0" counter packets 0 bytes 0 accept comment "ICC"
		ip daddr 172.17.0.2 tcp dport 80 counter packets 0 bytes 0 accept
		counter packets 0 bytes 0 drop comment "UNPUBLISHED PORT DROP"
	}

	chain nat-postrouting-out__docker0 {
		oifname != "docker0" ip saddr 172.17.0.0/16 counter packets 0 bytes 0 masquerade comment "MASQUERADE"
	}

	chain raw-PREROUTING {
		type filter hook prerouting priority raw; policy accept;
		ip daddr 172.17.0.2 iifname != "docker0" counter packets 0 bytes 0 drop comment "DROP DIRECT ACCESS"
	}
}
`,
  },
  "flannel before it had chains": {
    isLast: true,
    iptables: {
      filter: "-A FORWARD -s 10.180.0.0/16 -j ACCEPT\n-A FORWARD -d 10.180.0.0/16 -j ACCEPT",
      nat: `
-A POSTROUTING -s 10.180.0.0/16 -d 10.180.0.0/16 -m comment --comment "flanneld masq" -j RETURN
-A POSTROUTING -s 10.180.0.0/16 ! -d 224.0.0.0/4 -m comment --comment "flanneld masq" -j MASQUERADE --random-fully
-A POSTROUTING ! -s 10.180.0.0/16 -d 10.180.0.0/24 -m comment --comment "flanneld masq" -j RETURN
-A POSTROUTING ! -s 10.180.0.0/16 -d 10.180.0.0/16 -m comment --comment "flanneld masq" -j MASQUERADE --random-fully`,
    },
  },
  flannel: {
    iptables: {
      filter: `
-A FORWARD -m comment --comment "flanneld forward" -j FLANNEL-FWD
-A FLANNEL-FWD -s 10.180.0.0/16 -m comment --comment "flanneld forward" -j ACCEPT
-A FLANNEL-FWD -d 10.180.0.0/16 -m comment --comment "flanneld forward" -j ACCEPT`,
      nat: `
-A POSTROUTING -m comment --comment "flanneld masq" -j FLANNEL-POSTRTG
-A FLANNEL-POSTRTG -m mark --mark 0x4000/0x4000 -m comment --comment "flanneld masq" -j RETURN
-A FLANNEL-POSTRTG -s 10.180.0.0/24 -d 10.180.0.0/16 -m comment --comment "flanneld masq" -j RETURN
-A FLANNEL-POSTRTG -s 10.180.0.0/16 -d 10.180.0.0/24 -m comment --comment "flanneld masq" -j RETURN
-A FLANNEL-POSTRTG ! -s 10.180.0.0/16 -d 10.180.0.0/24 -m comment --comment "flanneld masq" -j RETURN
-A FLANNEL-POSTRTG -s 10.180.0.0/16 ! -d 224.0.0.0/4 -m comment --comment "flanneld masq" -j MASQUERADE --random-fully
-A FLANNEL-POSTRTG ! -s 10.180.0.0/16 -d 10.180.0.0/16 -m comment --comment "flanneld masq" -j MASQUERADE --random-fully`,
    },
  },
  "flannel by nft": {
    nft: `
table ip flannel-ipv4 {
	comment "rules for flannel-ipv4"
	chain forward {
		comment "chain to accept flannel traffic"
		type filter hook forward priority filter; policy accept;
		ip saddr 10.180.0.0/16 accept
		ip daddr 10.180.0.0/16 accept
	}

	chain postrtg {
		comment "chain to manage traffic masquerading by flannel"
		type nat hook postrouting priority srcnat; policy accept;
		meta mark 0x00004000 return
		ip saddr 10.180.0.0/24 ip daddr 10.180.0.0/16 return
		ip saddr 10.180.0.0/16 ip daddr 10.180.0.0/24 return
		ip saddr != 10.180.0.0/24 ip daddr 10.180.0.0/16 return
		ip saddr 10.180.0.0/16 ip daddr != 224.0.0.0/4 masquerade fully-random
		ip saddr != 10.180.0.0/16 ip daddr 10.180.0.0/16 masquerade fully-random
	}
}
`,
  },
  Calico: {
    policies: { FORWARD: "DROP" },
    iptables: {
      raw: `
-A PREROUTING -m comment --comment "cali:6gwbT8clXdHdC1b1" -j cali-PREROUTING
-A OUTPUT -m comment --comment "cali:tVnHkvAo15HuiPy0" -j cali-OUTPUT
-A cali-PREROUTING -m comment --comment "cali:XFX5xbM8B9qR10JG" -j MARK --set-xmark 0x0/0xf0000
-A cali-PREROUTING -i cali+ -m comment --comment "cali:EWMPb0zVROM-woQp" -j MARK --set-xmark 0x40000/0x40000`,
      mangle: `
-A PREROUTING -m comment --comment "cali:6gwbT8clXdHdC1b1" -j cali-PREROUTING
-A cali-PREROUTING -m comment --comment "cali:6BJqBjBC7crtA-7-" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT`,
      filter: `
-A INPUT -m comment --comment "cali:Cz_u1IQiXIMmKD4c" -j cali-INPUT
-A FORWARD -m comment --comment "cali:wUHhoiAYhphO9Mso" -j cali-FORWARD
-A FORWARD -m comment --comment "cali:S93hcgKJrXEqnTfs" -m comment --comment "Policy explicitly accepted packet." -m mark --mark 0x10000/0x10000 -j ACCEPT
-A FORWARD -m comment --comment "cali:mp77cMpurHhyjLrM" -j MARK --set-xmark 0x10000/0x10000
-A OUTPUT -m comment --comment "cali:tVnHkvAo15HuiPy0" -j cali-OUTPUT
-A cali-FORWARD -m comment --comment "cali:vjrMJCRpqwy5oRoX" -j MARK --set-xmark 0x0/0xe0000
-A cali-FORWARD -i cali+ -m comment --comment "cali:8ZoYfO5HKXWbB3pk" -j cali-from-wl-dispatch
-A cali-FORWARD -o cali+ -m comment --comment "cali:jdEuaPBe14V2hutn" -j cali-to-wl-dispatch
-A cali-INPUT -p ipencap -m comment --comment "cali:PajejrV4aFdkZojI" -m comment --comment "Allow IPIP packets from Calico hosts" -m set --match-set cali40all-hosts-net src -m addrtype --dst-type LOCAL -j ACCEPT
-A cali-INPUT -p ipencap -m comment --comment "cali:_wjq-Yrma8Ly1Svo" -m comment --comment "Drop IPIP packets from non-Calico hosts" -j DROP
-A cali-INPUT -i cali+ -m comment --comment "cali:8TZGxLWh_Eiz66wc" -g cali-wl-to-host
-A cali-INPUT -m comment --comment "cali:6McIeIDvPdL6PE1T" -m mark --mark 0x10000/0x10000 -j ACCEPT
-A cali-OUTPUT -m comment --comment "cali:Mq1_rAdXXH3YkrzW" -m mark --mark 0x10000/0x10000 -j ACCEPT
-A cali-from-wl-dispatch -i cali12d4a061371 -m comment --comment "cali:nSWYFQHdvfuT7rMm" -g cali-fw-cali12d4a061371
-A cali-from-wl-dispatch -m comment --comment "cali:zTj6P0TIgYvgz-md" -m comment --comment "Unknown interface" -j DROP
-A cali-fw-cali12d4a061371 -m comment --comment "cali:p3B9cDpOZQXQc6JL" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A cali-fw-cali12d4a061371 -m comment --comment "cali:3mUeAKHC8rW8cxHV" -j MARK --set-xmark 0x10000/0x10000
-A cali-to-wl-dispatch -m comment --comment "cali:7KNphB1nNHw80nIO" -m comment --comment "Unknown interface" -j DROP
-A cali-wl-to-host -m comment --comment "cali:Ee9Sbo10IpVujdIY" -j cali-from-wl-dispatch
-A cali-wl-to-host -m comment --comment "cali:nSZbcOoG1xPONxb8" -m comment --comment "Configured DefaultEndpointToHostAction" -j ACCEPT`,
      nat: `
-A PREROUTING -m comment --comment "cali:6gwbT8clXdHdC1b1" -j cali-PREROUTING
-A OUTPUT -m comment --comment "cali:tVnHkvAo15HuiPy0" -j cali-OUTPUT
-A POSTROUTING -m comment --comment "cali:O3lYWMrLQYEMJtB5" -j cali-POSTROUTING
-A cali-OUTPUT -m comment --comment "cali:GBTAv2p5CwevEyJm" -j cali-fip-dnat
-A cali-POSTROUTING -m comment --comment "cali:Z-c7XtVd2Bq7s_hA" -j cali-fip-snat
-A cali-POSTROUTING -m comment --comment "cali:nYKhEzDlr11Jccal" -j cali-nat-outgoing
-A cali-PREROUTING -m comment --comment "cali:r6XmIziWUJsdOK6Z" -j cali-fip-dnat
-A cali-nat-outgoing -m comment --comment "cali:flqWnvo8yq4ULQLa" -m set --match-set cali40masq-ipam-pools src -m set ! --match-set cali40all-ipam-pools dst -j MASQUERADE --random-fully`,
    },
  },
  Cilium: {
    iptables: {
      raw: `
-A PREROUTING -m comment --comment "cilium-feeder: CILIUM_PRE_raw" -j CILIUM_PRE_raw
-A OUTPUT -m comment --comment "cilium-feeder: CILIUM_OUTPUT_raw" -j CILIUM_OUTPUT_raw
-A CILIUM_OUTPUT_raw -o lxc+ -m mark --mark 0xa00/0xfffffeff -m comment --comment "cilium: NOTRACK for proxy return traffic" -j CT --notrack
-A CILIUM_PRE_raw -m mark --mark 0x200/0xf00 -m comment --comment "cilium: NOTRACK for proxy traffic" -j CT --notrack`,
      mangle: `
-A PREROUTING -m comment --comment "cilium-feeder: CILIUM_PRE_mangle" -j CILIUM_PRE_mangle
-A CILIUM_PRE_mangle ! -o lo -m socket --transparent -m comment --comment "cilium: any->pod redirect proxied traffic to host proxy" -j MARK --set-xmark 0x200/0xffffffff`.replace(
        " ! -o lo",
        "",
      ),
      filter: `
-A INPUT -m comment --comment "cilium-feeder: CILIUM_INPUT" -j CILIUM_INPUT
-A FORWARD -m comment --comment "cilium-feeder: CILIUM_FORWARD" -j CILIUM_FORWARD
-A OUTPUT -m comment --comment "cilium-feeder: CILIUM_OUTPUT" -j CILIUM_OUTPUT
-A CILIUM_FORWARD -o cilium_host -m comment --comment "cilium: any->cluster on cilium_host forward accept" -j ACCEPT
-A CILIUM_FORWARD -i cilium_host -m comment --comment "cilium: cluster->any on cilium_host forward accept (nodeport)" -j ACCEPT
-A CILIUM_FORWARD -i lxc+ -m comment --comment "cilium: cluster->any on lxc+ forward accept" -j ACCEPT
-A CILIUM_FORWARD -o lxc+ -m comment --comment "cilium: any->cluster on lxc+ forward accept" -j ACCEPT
-A CILIUM_INPUT -m mark --mark 0x200/0xf00 -m comment --comment "cilium: ACCEPT for proxy traffic" -j ACCEPT
-A CILIUM_OUTPUT -m mark --mark 0xa00/0xfffffeff -m comment --comment "cilium: ACCEPT for proxy return traffic" -j ACCEPT
-A CILIUM_OUTPUT -m mark ! --mark 0xe00/0xf00 -m mark ! --mark 0xd00/0xf00 -m mark ! --mark 0xa00/0xe00 -m comment --comment "cilium: host->any mark as from host" -j MARK --set-xmark 0xc00/0xf00`,
      nat: `
-A PREROUTING -m comment --comment "cilium-feeder: CILIUM_PRE_nat" -j CILIUM_PRE_nat
-A OUTPUT -m comment --comment "cilium-feeder: CILIUM_OUTPUT_nat" -j CILIUM_OUTPUT_nat
-A POSTROUTING -m comment --comment "cilium-feeder: CILIUM_POST_nat" -j CILIUM_POST_nat
-A CILIUM_POST_nat -s 10.180.0.0/24 ! -d 10.180.0.0/24 ! -o cilium_+ -m comment --comment "cilium masquerade non-cluster" -j MASQUERADE`,
    },
  },
  "kube-router": {
    iptables: {
      filter: `
-A INPUT -m comment --comment "kube-router netpol - 4IA2OSFRMVNDXBVV" -j KUBE-ROUTER-INPUT
-A INPUT -m comment --comment "KUBE-ROUTER rule to explicitly ACCEPT traffic that comply to network policies" -m mark --mark 0x20000/0x20000 -j ACCEPT
-A FORWARD -m comment --comment "kube-router netpol - TEMCG2JMHZYE7H7T" -j KUBE-ROUTER-FORWARD
-A FORWARD -o kube-bridge -m comment --comment "allow inbound traffic to pods" -j ACCEPT
-A FORWARD -i kube-bridge -m comment --comment "allow outbound traffic from pods" -j ACCEPT
-A FORWARD -o eth0 -m comment --comment "allow outbound node port traffic on node interface with which node ip is associated" -j ACCEPT
-A FORWARD -m comment --comment "KUBE-ROUTER rule to explicitly ACCEPT traffic that comply to network policies" -m mark --mark 0x20000/0x20000 -j ACCEPT
-A OUTPUT -m comment --comment "kube-router netpol - VEAAIY32XVBHCSCY" -j KUBE-ROUTER-OUTPUT
-A OUTPUT -m comment --comment "KUBE-ROUTER rule to explicitly ACCEPT traffic that comply to network policies" -m mark --mark 0x20000/0x20000 -j ACCEPT
-A KUBE-ROUTER-FORWARD -s 10.180.0.5/32 -m comment --comment "rule to jump traffic from POD name:web namespace: default to chain KUBE-POD-FW-24CAQJ4LYSAY3PHB" -j KUBE-POD-FW-24CAQJ4LYSAY3PHB
-A KUBE-ROUTER-FORWARD -d 10.180.0.5/32 -m comment --comment "rule to jump traffic destined to POD name:web namespace: default to chain KUBE-POD-FW-24CAQJ4LYSAY3PHB" -j KUBE-POD-FW-24CAQJ4LYSAY3PHB
-A KUBE-ROUTER-FORWARD -d 10.180.0.5/32 -m physdev --physdev-is-bridged -m comment --comment "rule to jump traffic destined to POD name:web namespace: default to chain KUBE-POD-FW-24CAQJ4LYSAY3PHB" -j KUBE-POD-FW-24CAQJ4LYSAY3PHB
-A KUBE-NWPLCY-DEFAULT -m comment --comment "rule to mark traffic matching a network policy" -j MARK --set-xmark 0x10000/0x10000
-A KUBE-POD-FW-24CAQJ4LYSAY3PHB -m comment --comment "rule for stateful firewall for pod" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A KUBE-POD-FW-24CAQJ4LYSAY3PHB -m comment --comment "rule to drop invalid state for pod" -m conntrack --ctstate INVALID -j DROP
-A KUBE-POD-FW-24CAQJ4LYSAY3PHB -d 10.180.0.5/32 -m comment --comment "rule to permit the traffic traffic to pods when source is the pod\\'s local node" -m addrtype --src-type LOCAL -j ACCEPT
-A KUBE-POD-FW-24CAQJ4LYSAY3PHB -s 10.180.0.5/32 -m comment --comment "run through default egress network policy chain" -j KUBE-NWPLCY-DEFAULT
-A KUBE-POD-FW-24CAQJ4LYSAY3PHB -m comment --comment "rule to log dropped traffic POD name:web namespace: default" -m mark ! --mark 0x10000/0x10000 -m limit --limit 10/min --limit-burst 10 -j NFLOG --nflog-group 100
-A KUBE-POD-FW-24CAQJ4LYSAY3PHB -m comment --comment "rule to REJECT traffic destined for POD name:web namespace: default" -m mark ! --mark 0x10000/0x10000 -j REJECT --reject-with icmp-port-unreachable
-A KUBE-POD-FW-24CAQJ4LYSAY3PHB -j MARK --set-xmark 0x0/0x10000
-A KUBE-POD-FW-24CAQJ4LYSAY3PHB -m comment --comment "set mark to ACCEPT traffic that comply to network policies" -j MARK --set-xmark 0x20000/0x20000`,
      nat: `
-A POSTROUTING -m set --match-set kube-router-pod-subnets src -m set ! --match-set kube-router-pod-subnets dst -m set ! --match-set kube-router-node-ips dst -j MASQUERADE --random-fully`,
    },
  },
  "the VPC CNI": {
    iptables: {
      mangle: `
-A PREROUTING -i eth0 -m comment --comment "AWS, primary ENI" -m addrtype --dst-type LOCAL --limit-iface-in -j CONNMARK --set-xmark 0x80/0x80
-A PREROUTING -i eni+ -m comment --comment "AWS, primary ENI" -j CONNMARK --restore-mark --nfmask 0x80 --ctmask 0x80
-A PREROUTING -i vlan+ -m comment --comment "AWS, primary ENI" -j CONNMARK --restore-mark --nfmask 0x80 --ctmask 0x80`,
      nat: `
-A PREROUTING -i eni+ -m comment --comment "AWS, outbound connections" -j AWS-CONNMARK-CHAIN-0
-A PREROUTING -m comment --comment "AWS, CONNMARK" -j CONNMARK --restore-mark --nfmask 0x80 --ctmask 0x80
-A POSTROUTING -m comment --comment "AWS SNAT CHAIN" -j AWS-SNAT-CHAIN-0
-A AWS-CONNMARK-CHAIN-0 -d 10.180.0.0/16 -m comment --comment "AWS CONNMARK CHAIN, VPC CIDR" -j RETURN
-A AWS-CONNMARK-CHAIN-0 -m comment --comment "AWS, CONNMARK" -j CONNMARK --set-xmark 0x80/0x80
-A AWS-SNAT-CHAIN-0 -d 10.180.0.0/16 -m comment --comment "AWS SNAT CHAIN" -j RETURN
-A AWS-SNAT-CHAIN-0 ! -o vlan+ -m comment --comment "AWS, SNAT" -m addrtype ! --dst-type LOCAL -j SNAT --to-source 10.200.0.2 --random-fully`,
    },
  },
  "the ip-masq-agent": {
    iptables: {
      nat: `
-A POSTROUTING -m comment --comment "ip-masq-agent: ensure nat POSTROUTING directs all non-LOCAL destination traffic to our custom IP-MASQ chain" -m addrtype ! --dst-type LOCAL -j IP-MASQ
-A IP-MASQ -d 10.0.0.0/8 -m comment --comment "ip-masq-agent: local traffic is not subject to MASQUERADE" -j RETURN
-A IP-MASQ -m comment --comment "ip-masq-agent: outbound traffic is subject to MASQUERADE (must be last in chain)" -j MASQUERADE`,
    },
  },
};

const BASES: Readonly<Record<string, readonly string[]>> = {
  raw: ["PREROUTING", "OUTPUT"],
  mangle: ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"],
  filter: ["INPUT", "FORWARD", "OUTPUT"],
  nat: ["PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"],
};

/** Its rules among those of a dump. @param isFirst whether they are called before the dump's in its built-in chains. */
export function inWorld(
  saved: string,
  { iptables = {}, policies = {}, nft = "", isLast }: World,
  first: boolean,
): Dump[] {
  const isFirst = first && isLast !== true;
  let text = saved;
  for (const [table, listed] of Object.entries(iptables)) {
    const bases = BASES[table] ?? [];
    if (!text.includes(`*${table}\n`))
      text += `*${table}\n${bases.map((base) => `:${base} ACCEPT [0:0]\n`).join("")}COMMIT\n`;
    const lines = listed.split("\n").filter((line) => line !== "");
    const named = lines.flatMap(
      (line) => / -[jg] ((?:KUBE|CNI|DOCKER|FLANNEL|cali|CILIUM|AWS|IP)\S+|DOCKER)/.exec(line)?.[1] ?? [],
    );
    const declared = lines.flatMap((line) => /^:(\S+)/.exec(line)?.[1] ?? []);
    const own = lines.flatMap((line) => /^-A (\S+)/.exec(line)?.[1] ?? []);
    const chains = [...new Set([...named, ...declared, ...own])].filter((chain) => !bases.includes(chain));
    const rules = lines.filter((line) => line.startsWith("-A"));
    text = text.replace(
      new RegExp(`^(\\*${table}\\n(?::.*\\n)*)((?:-A.*\\n)*)`, "m"),
      (_, heads: string, old: string) => {
        const fresh = chains.filter((chain) => !heads.includes(`:${chain} `)).map((chain) => `:${chain} - [0:0]\n`);
        const added = rules.filter((rule) => !old.includes(`${rule}\n`)).map((rule) => `${rule}\n`);
        return `${heads}${fresh.join("")}${isFirst ? added.join("") + old : old + added.join("")}`;
      },
    );
  }
  for (const [chain, policy] of Object.entries(policies))
    text = text.replace(new RegExp(`(^\\*filter\\n(?::.*\\n)*?:${chain} )ACCEPT`, "m"), `$1${policy}`);
  const dumps = text === "" ? [] : recogniseDumps(text, "world");
  return nft === "" ? dumps : [...dumps, ...recogniseDumps(nft.trimStart(), "world")];
}
