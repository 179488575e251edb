package administration

import (
	"context"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// PolicyInstalled records that a node started with other policies than the last one recorded.
const PolicyInstalled = "backbone.policy.installed"

const policyStream = "backbone.policy"

var installedPolicy = event.StreamID{Type: policyStream, ID: "access"}

// Policy identifies the policies that a node decides by.
type Policy struct {
	SHA256  string `json:"sha256"`  // of all policies and the rights of the roles, hexadecimal
	Release string `json:"release"` // of the program
}

// installPolicy records the policies of this node in a tenant's log unless they are those that
// were recorded last.
func (l *Log) installPolicy(ctx context.Context, log ports.LegalEntity) error {
	for try := 1; ; try++ {
		last, err := l.newest(ctx, log, installedPolicy)
		if err != nil || last.StreamVersion > 0 && isPolicy(&last, l.policy.SHA256) {
			return err
		}
		err = l.writer.Write(ctx, Write{
			Log: log, Actor: event.Actor{Type: event.System, ID: "backbone", Name: "policy"}, Drafts: []event.Draft{draft(PolicyInstalled, installedPolicy, *l.policy)},
			Streams: []concurrency.StreamExpectation{{Stream: installedPolicy, Expected: expectVersion(last.StreamVersion)}},
		})
		switch {
		case err == nil:
			l.logger.InfoContext(ctx, "this node decides by other policies than were recorded last", "tenant", log.TenantID, "sha256", l.policy.SHA256, "release", l.policy.Release)
			return nil
		case fault.CodeOf(err) != concurrency.CodeWrongExpectedVersion || try == saveTries:
			return err
		}
	}
}

func isPolicy(e *event.Recorded, digest string) bool {
	var installed Policy
	return decode(e, &installed) == nil && installed.SHA256 == digest
}

func registerPolicies(r *module.Registrar) {
	r.EventType(builtin(PolicyInstalled, "A node started that decides by other policies than the nodes before it.",
		policySchema, `{"sha256":"123cf7f2916be9c7bb1af0da600e90662cf4758e52b2243bf6d006753955487c","release":"1.4.0"}`))
}

const policySchema = `{
  "type": "object",
  "additionalProperties": false,
  "required": ["sha256", "release"],
  "properties": {
    "sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$", "description": "of all policies and the rights of the roles"},
    "release": {"type": "string", "maxLength": 200, "description": "of the program"}
  }
}`
