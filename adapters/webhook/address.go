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
)

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

// checkAddress refuses an address that the configuration does not allow. Fault
// webhook.address_refused.
func (s *Sender) checkAddress(a netip.Addr) error {
	bare := a.WithZone("").Unmap()
	if s.config.AllowPrivateNetworks && bare.IsValid() && !bare.IsMulticast() && !bare.IsUnspecified() || isWithin(bare, s.config.AllowedNetworks) || Public(a) {
		return nil
	}
	return fault.New(fault.Forbidden, "webhook.address_refused", "the endpoint's name leads to an address of a private, local or reserved network; use a public one, or have an operator add the network to webhook.allowed_networks")
}
