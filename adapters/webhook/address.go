package webhook

import (
	"net/netip"
	"slices"

	"github.com/erpbackbone/backbone/domain/fault"
)

func prefixes(texts ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(texts))
	for i, t := range texts {
		out[i] = netip.MustParsePrefix(t)
	}
	return out
}

var (
	// blockedIPv4 are IANA's special-purpose addresses, such as those of this host, of private
	// networks and of metadata services, the multicast addresses, and the public address at
	// which one cloud serves metadata.
	blockedIPv4 = prefixes(
		"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24",
		"192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4", "168.63.129.16/32",
	)
	// publicIPv6 is the range of public IPv6 addresses. blockedIPv6 are its special-purpose
	// addresses, among them those in which a relay finds an IPv4 address to forward to.
	publicIPv6  = prefixes("2000::/3")
	blockedIPv6 = prefixes("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")
	// nat64 is the range whose addresses end in an IPv4 address.
	nat64 = netip.MustParsePrefix("64:ff9b::/96")
	// metadata are the addresses at which clouds give the keys of a machine to any program on it:
	// link-local ones and those of AWS, Google, Alibaba, Oracle, Azure and Scaleway. No setting
	// allows them.
	metadata = prefixes(
		"169.254.0.0/16", "100.100.100.200/32", "192.0.0.192/32", "168.63.129.16/32",
		"fe80::/10", "fd00:ec2::/32", "fd20:ce::254/128", "fd00:c1::a9fe:a9fe/128", "fd00:42::42/128",
	)
	// localNAT64 is the prefix of RFC 8215 from which a network takes the NAT64 prefixes of its own.
	localNAT64 = netip.MustParsePrefix("64:ff9b:1::/48")
	// embeddings are the ranges in whose addresses a relay finds an IPv4 address to forward to. A
	// prefix within localNAT64 may have 48, 56, 64 or 96 bits, and RFC 6052 section 2.2 puts the IPv4
	// address elsewhere for each length, around byte 8. Which length a network uses is not known here,
	// so an address is judged by all of them. To refuse the whole range instead would end deliveries to
	// hosts without IPv6 from a network that has no IPv4.
	embeddings = []embedding{
		{netip.MustParsePrefix("::/96"), [4]int{12, 13, 14, 15}},
		{nat64, [4]int{12, 13, 14, 15}},
		{netip.MustParsePrefix("2002::/16"), [4]int{2, 3, 4, 5}},
		{localNAT64, [4]int{6, 7, 9, 10}},
		{localNAT64, [4]int{7, 9, 10, 11}},
		{localNAT64, [4]int{9, 10, 11, 12}},
		{localNAT64, [4]int{12, 13, 14, 15}},
	}
)

// embedding says which bytes of the addresses of a range are an IPv4 address.
type embedding struct {
	within netip.Prefix
	bytes  [4]int
}

func (e embedding) ipv4(a netip.Addr) netip.Addr {
	b := a.As16()
	return netip.AddrFrom4([4]byte{b[e.bytes[0]], b[e.bytes[1]], b[e.bytes[2]], b[e.bytes[3]]})
}

// isMetadata reports whether an address is one of a metadata service, also in the forms that lead
// a relay there.
func isMetadata(a netip.Addr) bool {
	return isWithin(a, metadata) || slices.ContainsFunc(embeddings, func(e embedding) bool {
		return e.within.Contains(a) && isWithin(e.ipv4(a), metadata)
	})
}

func isWithin(a netip.Addr, list []netip.Prefix) bool {
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) })
}

// Public reports whether an address is known to be one of the public Internet.
func Public(a netip.Addr) bool {
	a = a.WithZone("").Unmap() // ::ffff:127.0.0.1 is 127.0.0.1
	switch {
	case !a.IsValid():
		return false
	case a.Is4():
		return !isWithin(a, blockedIPv4)
	case nat64.Contains(a):
		b := a.As16()
		return Public(netip.AddrFrom4([4]byte(b[12:])))
	default:
		return isWithin(a, publicIPv6) && !isWithin(a, blockedIPv6)
	}
}

// checkAddress refuses an address that the configuration does not allow. It is the same fault as
// that of a name that does not exist: told apart, they would tell the names of a private network.
func (s *Sender) checkAddress(a netip.Addr) error {
	bare := a.WithZone("").Unmap()
	allowed := s.config.AllowPrivateNetworks && bare.IsValid() && !bare.IsMulticast() && !bare.IsUnspecified() || isWithin(bare, s.config.AllowedNetworks) || Public(a)
	if allowed && !isMetadata(bare) {
		return nil
	}
	return unresolved()
}

// unresolved is the fault of a name that leads to no address which may be used.
func unresolved() error {
	return fault.New(fault.Unavailable, "webhook.dns",
		"the endpoint's name leads to no address that this server may connect to; correct it, or have an operator add its network to webhook.allowed_networks; it will be tried again")
}
