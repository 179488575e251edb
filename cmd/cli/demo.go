package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/erpbackbone/backbone/adapters/plugin"
	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/cmd/wire"
	"github.com/erpbackbone/backbone/configs/demo"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// demoLogName is the log name of every demonstration.
const demoLogName = "demo.backbone.local"

// setupWorkers is how many lanes of the set-up run in parallel. So many fill the transactions of
// the append engine, which groups concurrent appends.
const setupWorkers = 48

// SetUpDemo sets up the demonstration tenant, or continues the set-up of an interrupted start.
// tokens are those of earlier starts, by role; a persona without a valid one gets a new one.
// books is false if an earlier start has set up the books. progress may be nil; done and total
// count intents.
func SetUpDemo(ctx context.Context, app *wire.App, modules []plugin.Module, tokens map[string]string, books bool, progress func(title string, done, total int)) (map[string]string, error) {
	tokens, err := enrollPersonas(ctx, app, tokens)
	if err != nil {
		return nil, err
	}
	if !books {
		return tokens, nil
	}
	entities, err := demoEntities(ctx, app)
	if err != nil {
		return nil, err
	}
	return tokens, demoBooks(ctx, app, modules, entities, progress)
}

// demoEntities finds or creates the legal entities, in the order of demo.Entities.
func demoEntities(ctx context.Context, app *wire.App) ([]ports.LegalEntity, error) {
	have := map[string]ports.LegalEntity{}
	known, err := app.Tenancy.LegalEntities(ctx, demo.Tenant)
	if err != nil {
		return nil, err
	}
	for _, le := range known {
		have[le.Code] = le
	}
	var entities []ports.LegalEntity
	for _, e := range demo.Entities {
		le, exists := have[e.Code]
		if !exists {
			le, err = app.Tenancy.CreateLegalEntity(ctx, ports.LegalEntity{TenantID: demo.Tenant, Code: e.Code, Name: e.Name, TimeZone: e.TimeZone}, event.Actor{})
			if err != nil {
				return nil, err
			}
		}
		entities = append(entities, le)
	}
	return entities, nil
}

// demoBooks runs the stages one after another and the lanes of a stage in parallel.
func demoBooks(ctx context.Context, app *wire.App, modules []plugin.Module, entities []ports.LegalEntity, progress func(title string, done, total int)) error {
	total := 0
	books := make([][]demo.Stage, len(demo.Entities))
	for i, e := range demo.Entities {
		for _, m := range modules {
			if m.Demo.Books == nil {
				continue
			}
			stages, err := m.Demo.Books(e)
			if err != nil {
				return err
			}
			books[i] = append(books[i], stages...)
		}
		total += demo.Steps(books[i])
	}
	var done atomic.Int64
	report := func(title string) {
		if progress != nil {
			progress(title, int(done.Load()), total)
		}
	}
	for stage := range books[0] {
		title := books[0][stage].Title
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(setupWorkers)
		for i := range books {
			for n, lane := range books[i][stage].Lanes {
				group.Go(func() error {
					for m, step := range lane {
						key := fmt.Sprintf("demo-set-up-%d-%d-%d", stage, n, m)
						if err := setUpStep(ctx, app, entities[i], step, key); err != nil {
							return fmt.Errorf("set-up of %s, step %s: %w", entities[i].Code, step.Type, err)
						}
						done.Add(1)
						report(title)
					}
					return nil
				})
			}
		}
		if err := group.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// setUpStep submits one intent. If the intent needs an approval, a persona with a suitable role
// approves it. An intent that an earlier start completed is skipped.
func setUpStep(ctx context.Context, app *wire.App, le ports.LegalEntity, s demo.Step, key string) error {
	caller := demoCaller(app, s.As)
	out, err := app.Pipeline.Submit(ctx, caller, pipeline.Request{
		Type: s.Type, LegalEntity: le, Payload: s.Payload, IdempotencyKey: key,
		Source: event.Source{System: "backbone", Channel: "batch", Reference: "demo"},
	})
	if err == nil && out.Status == intent.PendingApproval {
		_, err = app.Pipeline.Approve(ctx, demoCaller(app, approverOf(out, s.As)), pipeline.Decision{LegalEntity: le, Intent: out.IntentID, PlanHash: out.PlanHash, Comment: "demonstration set-up"})
	}
	if err != nil && isDone(err) {
		return nil
	}
	return err
}

// approverOf picks a role whose approval the intent needs, other than the requester's.
func approverOf(out pipeline.Outcome, requester string) string {
	for _, need := range out.Needs {
		for _, role := range need.Roles {
			if role != requester {
				return role
			}
		}
	}
	return "cfo"
}

func isDone(err error) bool {
	code := fault.CodeOf(err)
	for _, suffix := range []string{".duplicate", ".overlap", ".wrong_state"} {
		if strings.HasSuffix(code, suffix) {
			return true
		}
	}
	return false
}

// demoPrincipal returns the principal of a persona. A service has an id of its own, and reads
// all classes of personal data of its modules.
func demoPrincipal(p demo.Persona) ports.Principal {
	out := ports.Principal{
		TenantID: demo.Tenant, PersonID: "p-" + p.TokenName(), ActorType: event.Human,
		RoleLabel: p.Role, Roles: []string{p.Role}, Development: true,
	}
	if len(p.Modules) > 0 {
		out.PersonID, out.ActorType = "s-"+p.Role, event.System
		out.Binding = ports.Binding{ResponsiblePerson: "p-" + demo.Responsible, Modules: p.Modules, PIIClasses: shredding.Classes(), TrustLevel: ports.TrustChecked}
	}
	out.PrincipalID = out.PersonID + "-dev"
	return out
}

// namedPrincipal is demoPrincipal with the person's name, where there are keys to seal it.
func namedPrincipal(app *wire.App, p demo.Persona) ports.Principal {
	out := demoPrincipal(p)
	if app.HasKeys() && !out.IsService() {
		out.Name = p.Name
	}
	return out
}

// personas returns one persona for each role, those of the modules included.
func personas(app *wire.App) []demo.Persona {
	all := slices.Clone(demo.Personas)
	for _, role := range app.Catalog.Roles {
		all = append(all, demo.Persona{Role: role.Name, Name: cmp.Or(role.Persona, role.Name)})
	}
	return all
}

func demoCaller(app *wire.App, role string) pipeline.Caller {
	for _, p := range personas(app) {
		if p.Role == role {
			principal := demoPrincipal(p)
			return pipeline.Caller{Principal: principal, Actor: principal.Actor()}
		}
	}
	return pipeline.Caller{}
}

func enrollPersonas(ctx context.Context, app *wire.App, kept map[string]string) (map[string]string, error) {
	out := map[string]string{}
	var persons, services []demo.Persona
	for _, p := range personas(app) {
		if len(p.Modules) > 0 {
			services = append(services, p)
		} else {
			persons = append(persons, p)
		}
	}
	// A person answers for the services, so the persons come first.
	for _, all := range [][]demo.Persona{persons, services} {
		if err := enrollTogether(ctx, app, all, kept, out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// enrollTogether enrolls personas concurrently and adds their tokens to out.
func enrollTogether(ctx context.Context, app *wire.App, personas []demo.Persona, kept, out map[string]string) error {
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	for _, p := range personas {
		group.Go(func() error {
			token := kept[p.TokenName()]
			if token != "" {
				if _, err := app.Tenancy.Authenticate(ctx, token); err != nil {
					token = "" // of another data folder
				}
			}
			if token == "" {
				fresh, err := app.Tenancy.Enroll(ctx, namedPrincipal(app, p))
				if err != nil {
					return err
				}
				token = fresh
			}
			mu.Lock()
			defer mu.Unlock()
			out[p.TokenName()] = token
			return nil
		})
	}
	return group.Wait()
}
