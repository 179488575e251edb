package webhooks

import (
	"context"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"strings"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
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
	return s.config.Decisions.Hosts(ctx, p.TenantID)
}

// AllowHost lets the tenant's webhooks send to a host. reason may be "". Faults:
// webhook.host_invalid, webhook.reason_invalid, pii.in_text, webhook.too_many_hosts.
func (s *Service) AllowHost(ctx context.Context, p ports.Principal, text, reason string) error {
	host, err := parseHost(text)
	if err != nil {
		return err
	}
	if err := checkReason(reason); err != nil {
		return err
	}
	all, err := s.Hosts(ctx, p)
	if err != nil {
		return err
	}
	if len(all) >= maxHosts {
		return fault.New(fault.FailedPrecondition, "webhook.too_many_hosts", "a tenant allows at most %d hosts; remove those that no endpoint uses", maxHosts)
	}
	return s.config.Decisions.DecideHost(ctx, p.TenantID, host, true, reason, p)
}

// RemoveHost ends deliveries to a host. Events for it are tried again and become dead letters at
// last. reason may be "". Faults: webhook.host_invalid, webhook.reason_invalid, pii.in_text.
func (s *Service) RemoveHost(ctx context.Context, p ports.Principal, text, reason string) error {
	host, err := parseHost(text)
	if err != nil {
		return err
	}
	if err := checkReason(reason); err != nil {
		return err
	}
	return s.config.Decisions.DecideHost(ctx, p.TenantID, host, false, reason, p)
}

// checkReason checks the reason of a decision about a host, which is kept for ever.
func checkReason(reason string) error {
	if len(reason) > maxReason {
		return fault.New(fault.Invalid, "webhook.reason_invalid", "a reason has at most %d bytes; shorten it", maxReason).WithField("reason")
	}
	return shredding.CheckText("reason", reason)
}

// checkHost refuses an address on a host that the tenant does not allow. Fault
// webhook.host_not_allowed.
func (s *Service) checkHost(ctx context.Context, tenantID, address string) error {
	host := hostOf(address)
	allowed, err := s.config.Decisions.HostAllowed(ctx, tenantID, host)
	if err == nil && !allowed {
		err = fault.New(fault.Forbidden, "webhook.host_not_allowed", "webhooks may not send to this host; have an administrator allow it: backbone webhooks allow %s", host).WithField("/url")
	}
	return err
}
