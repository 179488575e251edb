package verify

import (
	"context"

	"github.com/erpbackbone/backbone/domain/event"
)

const policyInstalled = "backbone.policy.installed"

// Policy identifies the policies that a node recorded last in the administrative log of a tenant.
type Policy struct {
	SHA256  string `json:"sha256"`
	Release string `json:"release"`  // of the node's program
	InForce bool   `json:"in_force"` // they are those of the program that verifies
}

// policies reports which policies were recorded last. Others than those of the program are no
// damage: nodes of two releases run while they are upgraded.
type policies struct {
	digest string // of the program's own
	last   *Policy
}

func (x *policies) note(c *chain, e *event.Recorded) {
	if e.Type != policyInstalled {
		return
	}
	var p Policy
	if !decodeData(e, &p) {
		c.add(AnnouncementUnreadable, e.Sequence, "the event of installed policies cannot be read")
		return
	}
	p.InForce = p.SHA256 == x.digest
	x.last = &p
}

func (x *policies) compare(_ context.Context, c *chain, _ Store) error {
	c.report.Policy = x.last
	return nil
}
