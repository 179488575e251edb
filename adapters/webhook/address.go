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
	// Ranges in whose addresses a relay finds an IPv4 address to forward to, by the byte at which
	// it begins.
	embedding = map[netip.Prefix]int{
		netip.MustParsePrefix("::/96"): 12, nat64: 12, netip.MustParsePrefix("64:ff9b:1::/48"): 12, netip.MustParsePrefix("2002::/16"): 2,
	}
)

// isMetadata reports whether an address is one of a metadata service, also in the forms that lead
// a relay there.
func isMetadata(a netip.Addr) bool {
	if isWithin(a, metadata) {
		return true
	}
	for prefix, at := range embedding {
		if b := a.As16(); prefix.Contains(a) && isWithin(netip.AddrFrom4([4]byte(b[at:at+4])), metadata) {
			return true
		}
	}
	return false
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
