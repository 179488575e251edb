package webhooks

import (
	"context"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// maxHosts bounds the hosts that a tenant allows. Two administrators at the same moment may exceed
// it by one.
const maxHosts = 200

// hostOf returns the host of an address as the list of allowed hosts has it: in small letters, with
// the port unless it is the scheme's own; "" if the address has none.
func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	if a, err := netip.ParseAddr(host); err == nil {
		host = a.String()
	}
	if port := u.Port(); port != "" && (u.Scheme != "https" || port != "443") && (u.Scheme != "http" || port != "80") {
		return net.JoinHostPort(host, port)
	}
	if strings.Contains(host, ":") {
		return "[" + host + "]"
	}
	return host
}

var hostName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)

// parseHost reads a host that an administrator names. Fault webhook.host_invalid.
func parseHost(text string) (string, error) {
	invalid := fault.New(fault.Invalid, "webhook.host_invalid",
		"a host is a name or an address, with a port unless it is the usual one, such as hooks.example.org or hooks.example.org:8443; correct it").WithField("host")
	u, err := url.Parse("https://" + text)
	if err != nil || u.Host != text || len(text) > 300 {
		return "", invalid
	}
	name := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	if _, err := netip.ParseAddr(name); err != nil && !hostName.MatchString(name) {
		return "", invalid
	}
	return hostOf("https://" + text), nil
}

// Hosts lists the hosts that the caller's tenant allows.
func (s *Service) Hosts(ctx context.Context, p ports.Principal) ([]ports.WebhookHost, error) {
	return s.config.Hosts.WebhookHosts(ctx, p.TenantID)
}

// AllowHost lets the tenant's webhooks send to a host. Faults: webhook.host_invalid,
// webhook.too_many_hosts.
func (s *Service) AllowHost(ctx context.Context, p ports.Principal, text string) error {
	host, err := parseHost(text)
	if err != nil {
		return err
	}
	all, err := s.Hosts(ctx, p)
	if err != nil {
		return err
	}
	if len(all) >= maxHosts {
		return fault.New(fault.FailedPrecondition, "webhook.too_many_hosts", "a tenant allows at most %d hosts; remove those that no endpoint uses", maxHosts)
	}
	return s.config.Hosts.AddWebhookHost(ctx, ports.WebhookHost{TenantID: p.TenantID, Host: host, AddedBy: p.PersonID, AddedAt: event.Micros(s.config.Clock.Now())})
}

// RemoveHost ends deliveries to a host. Events for it are tried again and become dead letters at
// last. Fault webhook.host_invalid.
func (s *Service) RemoveHost(ctx context.Context, p ports.Principal, text string) error {
	host, err := parseHost(text)
	if err != nil {
		return err
	}
	return s.config.Hosts.DeleteWebhookHost(ctx, p.TenantID, host)
}

// checkHost refuses an address on a host that the tenant does not allow. Fault
// webhook.host_not_allowed.
func (s *Service) checkHost(ctx context.Context, tenantID, address string) error {
	all, err := s.config.Hosts.WebhookHosts(ctx, tenantID)
	if err != nil {
		return err
	}
	host := hostOf(address)
	if !slices.ContainsFunc(all, func(h ports.WebhookHost) bool { return h.Host == host }) {
		return fault.New(fault.Forbidden, "webhook.host_not_allowed", "webhooks may not send to this host; have an administrator allow it: backbone webhooks allow %s", host).WithField("/url")
	}
	return nil
}
