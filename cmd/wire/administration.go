package wire

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	"github.com/erpbackbone/backbone/adapters/jsonschema"
	"github.com/erpbackbone/backbone/adapters/plugin"
	"github.com/erpbackbone/backbone/application/administration"
	eventappend "github.com/erpbackbone/backbone/application/append"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/subscriptions"
	"github.com/erpbackbone/backbone/configs"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// composeAdministration composes the administrative logs and the directory of callers over
// them. It begins the logs of tenants from before there were any, and records the policies there,
// which are nil in tools.
func (a *App) composeAdministration(ctx context.Context, clock ports.Clock, policy *administration.Policy) error {
	installation, err := a.Store.Directory.Installation(ctx)
	if err != nil {
		return err
	}
	a.administration = administration.NewLog(administration.LogConfig{
		Entities: a.Store.Directory, Streams: a.Store.Events, Writer: administrationWriter{a.appends}, Directory: a.Store.Directory, LogName: installation.LogName, Clock: clock, Logger: a.logger, Policy: policy,
		Adoptions: []administration.Adoption{
			administration.AdoptWebhooks(a.Store.Webhooks.FormerHosts, a.Store.formerWebhooks),
			administration.AdoptSubscriptions(a.Store.Subscriptions.Subscriptions),
			administration.AdoptMessageDecisions(a.Store.Subscriptions),
			administration.AdoptProjections(a.Store.ProjectionVersions.ListProjections),
			administration.AdoptProjectionVersions(a.Store.ProjectionVersions.ListProjections),
			administration.AdoptSkips(a.Store.ProjectionVersions, a.Store.Directory),
		},
	})
	a.Principals = administration.NewPrincipals(a.administration, a.Store.Audit, a.Store.Events)
	a.eventTypes.SetLog(a.administration, a.Store.Audit, a.Store.Events, a.Catalog.EventTypes)
	return a.administration.BeginAll(ctx)
}

// installs returns the policies that are to be recorded, nil in a tool.
func (o Options) installs(c *module.Catalog) *administration.Policy {
	if !o.serves {
		return nil
	}
	return &administration.Policy{SHA256: policyDigest(c), Release: configs.Version}
}

// PolicyDigest identifies the policies of this program with modules: the access policy, the rules
// of intents, and the rights of roles.
func PolicyDigest(modules []plugin.Module) (string, error) {
	catalog, err := joinModules(module.Declare, jsonschema.New(), modules)
	if err != nil {
		return "", err
	}
	return policyDigest(catalog), nil
}

func policyDigest(c *module.Catalog) string {
	all := allPolicies(c)
	slices.SortFunc(all, func(a, b ports.PolicyModule) int { return cmp.Compare(a.Path, b.Path) })
	text, _ := json.Marshal(struct { // of texts and sets of texts, which can be encoded
		Policies []ports.PolicyModule
		Roles    any
	}{all, c.RoleRights()})
	digest := sha256.Sum256(text)
	return hex.EncodeToString(digest[:])
}

// allPolicies are the policies of the modules and of the program.
func allPolicies(c *module.Catalog) []ports.PolicyModule {
	policies := slices.Clone(c.Policies)
	for path, source := range configs.Policies() {
		policies = append(policies, ports.PolicyModule{Path: path, Source: source})
	}
	return policies
}

// actorOf is a person as events name it; one who is not enrolled any more is named by id alone.
func (a *App) actorOf(ctx context.Context, tenantID, personID string) (event.Actor, error) {
	p, err := a.Principals.PrincipalByPerson(ctx, tenantID, personID)
	if err != nil && fault.KindOf(err) == fault.NotFound {
		return event.Actor{Type: event.Human, ID: personID, Name: "operator"}, nil
	}
	actor := p.Actor()
	actor.Details.SessionID = "" // the person may have several logins
	return actor, err
}

// bookHeads are the heads of legal entities, for what reads the books of all of them: it has
// no use for administrative logs.
type bookHeads struct{ *subscriptions.HeadWatcher }

// Heads implements projections.Heads and fanout.Heads.
func (b bookHeads) Heads() (map[event.PartitionID]ports.Head, <-chan struct{}) {
	heads, changed := b.HeadWatcher.Heads()
	return ports.WithoutAdministration(heads), changed
}

// bookLog is the log of legal entities, like bookHeads.
type bookLog struct{ EventStore }

// PartitionHeads implements ports.HeadReader.
func (b bookLog) PartitionHeads(ctx context.Context) (map[event.PartitionID]ports.Head, error) {
	heads, err := b.EventStore.PartitionHeads(ctx)
	return ports.WithoutAdministration(heads), err
}

// administrationWriter appends to the administrative logs.
type administrationWriter struct{ appends *eventappend.Service }

// Write implements administration.Writer.
func (w administrationWriter) Write(ctx context.Context, b administration.Write) error {
	_, _, err := w.appends.Append(ctx, eventappend.Request{
		LegalEntity: b.Log, Actor: b.Actor, PersonID: b.Actor.ID, Drafts: b.Drafts, Streams: b.Streams,
	})
	return err
}

// legalEntityCreated records a legal entity, and requests keys for its tenant, which may be new.
func (a *App) legalEntityCreated(ctx context.Context, le ports.LegalEntity, by event.Actor) error {
	a.prepareNewTenant()
	return a.administration.LegalEntityCreated(ctx, le, by)
}
