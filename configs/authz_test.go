package configs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/cover"
	"github.com/open-policy-agent/opa/v1/format"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/opa"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/configs"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/modules/ap"
	"github.com/erpbackbone/backbone/modules/gl"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/typestest"
)

const authzPath = "configs/policy/authz.rego"

// timeEnough lets a busy machine neither fail an expectation nor catch a mutant.
var timeEnough = opa.WithTimeout(time.Minute)

type accessInput map[string]any

type expectation struct {
	name   string
	input  accessInput
	allow  bool
	reason string              // "" for any
	reads  map[string][]string // classes in clear, sorted, by owner of the type; nil: not about them
}

func policies(replace map[string]string) (out []ports.PolicyModule) {
	for path, source := range configs.Policies() {
		if r, ok := replace[path]; ok {
			source = r
		}
		out = append(out, ports.PolicyModule{Path: path, Source: source})
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Path < out[j].Path })
	return out
}

// roleRights are the rights of declared roles, as the access policy reads them.
type roleRights map[string]struct {
	Approves bool     `json:"approves"`
	Reads    []string `json:"reads"`
}

// declaredRoles are the names of all roles and the rights of those that the built-in
// modules declare.
func declaredRoles(t testing.TB) (names []string, rights roleRights) {
	t.Helper()
	catalog, err := module.Build(typestest.Schemas{}, gl.New(), ap.New())
	require.NoError(t, err)
	text, err := json.Marshal(catalog.RoleRights())
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &rights))
	return catalog.RoleNames(), rights
}

// expectations are the matrix and the cases that no table of roles shows.
func expectations(t *testing.T) (out []expectation) {
	t.Helper()
	text, err := os.ReadFile("testdata/authz_matrix.txt")
	require.NoError(t, err)
	var roles []string
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0 || fields[0] == "#":
		case fields[0] == "action":
			roles = fields[1:]
		default:
			require.Len(t, fields, len(roles)+1)
			for i, role := range roles {
				reason := "role"
				if fields[0] == "events.delete" || fields[0] == "keys.rotate" {
					reason = "unknown_action"
				}
				if role == "auditor" && fields[i+1] == "." {
					reason = ""
				}
				out = append(out, matrixCases(fields[0], role, fields[i+1] == "y", reason)...)
			}
		}
	}
	foreign := []any{map[string]any{"type": "hr.employee.hired", "module": "hr", "builtin": false}}
	builtin := append([]any{map[string]any{"type": "ap.invoice.submitted", "module": "ap", "builtin": true}}, foreign...)
	unknown := []any{map[string]any{"type": "hr.employee.hired", "module": "hr"}}
	add := func(name string, allow bool, reason string, input accessInput) {
		out = append(out, expectation{name: name, input: input, allow: allow, reason: reason})
	}
	appendOf := func(types any) accessInput {
		return accessInput{"action": "events.append", "roles": []string{"module"}, "legal_entity": "USMF", "entitled": []string{"USMF"}, "event_types": types}
	}
	add("foreign type", true, "allowed", appendOf(foreign))
	add("built-in type among others", false, "event_type", appendOf(builtin))
	add("type of unknown owner", false, "event_type", appendOf(unknown))
	add("no types", false, "event_type", appendOf([]any{}))
	add("types elsewhere do not matter", true, "allowed", accessInput{"action": "events.read", "roles": []string{"module"}, "legal_entity": "USMF", "entitled": []string{}, "event_types": builtin})
	add("second role helps", true, "allowed", accessInput{"action": "event_types.register", "roles": []string{"ap_clerk", "admin"}, "legal_entity": "", "entitled": []string{}})
	add("auditor with another role writes nothing", false, "auditor", accessInput{"action": "intents.submit", "roles": []string{"controller", "auditor"}, "legal_entity": "USMF", "entitled": []string{}})
	for _, action := range []string{
		"intents.approve", "events.append", "snapshots.write", "streams.describe", "streams.delete", "streams.tombstone", "event_types.register", "event_types.deprecate", "event_types.confirm", "legal_entities.create", "principals.enroll", "projections.operate", "projections.define",
		"papers.keep", "erasure.request", "erasure.approve", "redaction.request", "redaction.approve", "holds.place", "holds.release",
		"subscriptions.manage", "subscriptions.consume", "subscriptions.operate", "webhooks.allow", "webhooks.disclose", "disclosures.grant",
	} {
		add("auditor with another role: "+action, false, "auditor", accessInput{
			"action": action, "roles": []string{"module", "admin", "compliance", "auditor"}, "legal_entity": "", "entitled": []string{}, "actor": person,
		})
	}
	add("auditor with another role reads", true, "allowed", accessInput{"action": "events.read", "roles": []string{"controller", "auditor"}, "legal_entity": "USMF", "entitled": []string{}})
	add("no roles", false, "role", accessInput{"action": "event_types.read", "roles": []string{}, "legal_entity": "", "entitled": []string{}})
	add("roles missing", false, "role", accessInput{"action": "event_types.read", "legal_entity": "", "entitled": []string{}})
	add("roles as text", false, "role", accessInput{"action": "event_types.read", "roles": "admin", "legal_entity": "", "entitled": []string{}})
	add("action missing", false, "unknown_action", accessInput{"roles": []string{"admin"}, "legal_entity": "", "entitled": []string{}})
	add("entitlement missing", false, "legal_entity", accessInput{"action": "events.read", "roles": []string{"auditor"}, "legal_entity": "USMF"})
	add("entitlement null", false, "legal_entity", accessInput{"action": "events.read", "roles": []string{"auditor"}, "legal_entity": "USMF", "entitled": nil})
	add("legal entity missing", false, "legal_entity", accessInput{"action": "events.read", "roles": []string{"auditor"}, "entitled": []string{}})
	add("legal entity missing, entitled to one", false, "legal_entity", accessInput{"action": "events.read", "roles": []string{"auditor"}, "entitled": []string{"USMF"}})
	add("nothing", false, "unknown_action", accessInput{})
	ofAdministration := func(action, role string, entitled ...string) accessInput {
		return accessInput{"action": action, "roles": []string{role}, "legal_entity": ports.AdministrativeCode, "entitled": append([]string{}, entitled...)}
	}
	add("auditor reads the administrative log", true, "allowed", ofAdministration("events.read", "auditor"))
	add("admin reads a stream of the administrative log", true, "allowed", ofAdministration("streams.read", "admin"))
	add("auditor of one legal entity and the administrative log", false, "legal_entity", ofAdministration("events.read", "auditor", "USMF"))
	add("entitlement to the administrative log alone", false, "legal_entity", ofAdministration("events.read", "auditor", ports.AdministrativeCode))
	add("clerk and the administrative log", false, "legal_entity", ofAdministration("events.read", "ap_clerk"))
	add("service and the administrative log", false, "legal_entity", ofAdministration("events.read", "module"))
	add("admin writes to the administrative log", false, "legal_entity", ofAdministration("intents.submit", "admin"))
	add("admin tombstones a stream of the administrative log", false, "legal_entity", ofAdministration("streams.tombstone", "admin"))

	approve := func(actor, requester any) accessInput {
		q := accessInput{"action": "erasure.approve", "roles": []string{"compliance"}, "legal_entity": "", "entitled": []string{}, "actor": actor}
		if requester != nil {
			q["requester"] = requester
		}
		return q
	}
	redact := approve(person, "p-1")
	redact["action"] = "redaction.approve"
	add("the requester approves a redaction", false, "same_person", redact)
	redact = approve(map[string]any{"type": "system", "person": "p-1"}, "p-2")
	redact["action"] = "redaction.approve"
	add("a service approves a redaction", false, "service", redact)
	add("another person approves", true, "allowed", approve(person, "p-2"))
	add("the requester approves", false, "same_person", approve(person, "p-1"))
	add("requester unknown", false, "same_person", approve(person, ""))
	add("requester no text", false, "same_person", approve(person, 7))
	add("approver unknown", false, "same_person", approve(map[string]any{"type": "human", "person": ""}, "p-2"))
	add("approver missing", false, "same_person", approve(map[string]any{"type": "human"}, "p-2"))
	add("approver no text", false, "same_person", approve(map[string]any{"type": "human", "person": 7}, "p-2"))
	for _, kind := range []any{"system", "external", "import", "agent", "", nil} {
		add(fmt.Sprintf("%v approves", kind), false, "service", approve(map[string]any{"type": kind, "person": "p-1"}, "p-2"))
	}
	add("requester elsewhere does not matter", true, "allowed", accessInput{"action": "erasure.read", "roles": []string{"compliance"}, "legal_entity": "", "entitled": []string{}, "actor": person, "requester": "p-1"})
	add("no actor approves", false, "service", approve(nil, "p-2"))
	serviceOf := func(change map[string]any) accessInput {
		q := accessInput{"action": "intents.submit", "roles": []string{"module"}, "legal_entity": "USMF", "entitled": []string{}, "service": true, "modules": []string{"hr"}, "event_types": foreign}
		maps.Copy(q, change)
		return q
	}
	add("service in its module", true, "allowed", serviceOf(nil))
	add("service in another module", false, "module", serviceOf(map[string]any{"modules": []string{"crm"}}))
	add("service in one of two modules", false, "module", serviceOf(map[string]any{"event_types": builtin}))
	add("service in two modules", true, "allowed", serviceOf(map[string]any{"event_types": builtin, "modules": []string{"hr", "ap"}}))
	add("service bound to nothing", false, "module", serviceOf(map[string]any{"modules": []string{}}))
	add("service whose modules are missing", false, "module", serviceOf(map[string]any{"modules": nil}))
	add("service with a type of unknown module", false, "module", serviceOf(map[string]any{"event_types": []any{map[string]any{"type": "hr.x"}}}))
	add("service with a type of no module", false, "module", serviceOf(map[string]any{"event_types": []any{map[string]any{"type": "hr.x", "module": ""}}}))
	add("service before the type is known", true, "allowed", serviceOf(map[string]any{"event_types": []any{map[string]any{"type": "", "module": ""}}}))
	add("service with types that are no list", false, "module", serviceOf(map[string]any{"event_types": nil}))
	add("service without types", true, "allowed", serviceOf(map[string]any{"event_types": []any{}}))
	add("service with a role that approves", false, "service", serviceOf(map[string]any{"action": "intents.approve", "roles": []string{"module", "controller"}}))
	add("service that names a person as its actor", false, "service", serviceOf(map[string]any{"action": "intents.approve", "roles": []string{"module", "controller"}, "actor": person}))
	for action, role := range map[string]string{
		"access_log.read": "auditor", "personal_data.report": "compliance", "personal_data.search": "compliance_approver", "principals.names": "auditor",
	} {
		of := func(service any) accessInput {
			return serviceOf(map[string]any{"action": action, "roles": []string{"module", role}, "legal_entity": "", "service": service, "event_types": []any{}})
		}
		add("service and "+action, false, "service", of(true))
		add("caller of unknown kind and "+action, false, "service", of(nil))
		add("person and "+action, true, "allowed", of(false))
	}
	add("service that discloses to a webhook", true, "allowed", serviceOf(map[string]any{"action": "webhooks.disclose", "roles": []string{"module", "compliance"}}))
	add("person in a module", true, "allowed", serviceOf(map[string]any{"service": false, "roles": []string{"ap_clerk"}, "modules": []string{}}))
	add("of unknown kind", false, "module", serviceOf(map[string]any{"service": nil, "roles": []string{"ap_clerk"}, "modules": []string{}}))
	for _, role := range []string{"module", "importer"} {
		add("person as "+role, false, "role", serviceOf(map[string]any{"service": false, "roles": []string{role}}))
	}
	enroll := func(person any, entitled []string, change map[string]any) accessInput {
		q := accessInput{
			"action": "principals.enroll", "roles": []string{"admin"}, "legal_entity": "", "entitled": entitled, "actor": map[string]any{"type": "human", "person": person},
			"enrolment": map[string]any{"persons": []string{"p-2"}, "entitlements": []any{[]string{"USMF"}}},
		}
		maps.Copy(q["enrolment"].(map[string]any), change)
		return q
	}
	wide := map[string]any{"entitlements": []any{[]string{"USMF"}, []string{}}}
	add("enrolls another person", true, "allowed", enroll("p-1", []string{}, wide))
	add("enrolls themselves", false, "self", enroll("p-2", []string{}, nil))
	add("enrolls their own service", false, "self", enroll("p-1", []string{}, map[string]any{"persons": []string{"s-1", "p-1"}}))
	add("enrolls as a person unknown", false, "self", enroll(7, []string{}, nil))
	add("enrolls with persons missing", false, "self", enroll("p-1", []string{}, map[string]any{"persons": 7}))
	add("enrolls within the entitlement", true, "allowed", enroll("p-1", []string{"USMF", "DEMF"}, nil))
	add("enrolls beyond the entitlement", false, "exceeds", enroll("p-1", []string{"DEMF"}, nil))
	add("enrolls partly beyond the entitlement", false, "exceeds", enroll("p-1", []string{"USMF"}, map[string]any{"entitlements": []any{[]string{"USMF", "DEMF"}}}))
	add("enrolls for all of the tenant by some", false, "exceeds", enroll("p-1", []string{"USMF"}, wide))
	add("an enrolment elsewhere does not matter", true, "allowed", accessInput{
		"action": "event_types.read", "roles": []string{"admin"}, "legal_entity": "", "entitled": []string{"USMF"}, "actor": person, "enrolment": map[string]any{"persons": []string{"p-1"}, "entitlements": []any{[]string{}}},
	})
	out = append(out, readings(t)...)
	for _, x := range out {
		if _, given := x.input["service"]; !given {
			x.input["service"] = holdsServiceRole(x.input["roles"])
		}
		if _, given := x.input["modules"]; !given && x.input["service"] == true {
			x.input["modules"] = []string{"hr", "ap"}
		}
	}
	return out
}

// holdsServiceRole reports whether the caller of an expectation is a service.
func holdsServiceRole(roles any) bool {
	list, _ := roles.([]string)
	return slices.ContainsFunc(list, module.IsServiceRole)
}

var person = map[string]any{"type": "human", "person": "p-1"}

// readings are who reads which class of personal data.
func readings(t *testing.T) (out []expectation) {
	t.Helper()
	text, err := os.ReadFile("testdata/pii_matrix.txt")
	require.NoError(t, err)
	var columns []string
	byRole := map[string]map[string][]string{}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0 || fields[0] == "#":
		case fields[0] == "role":
			columns = fields[1:]
			require.Len(t, columns, 2*len(shredding.Classes()))
		default:
			require.Len(t, fields, len(columns)+1)
			reads := map[string][]string{"builtin": {}, "foreign": {}}
			for i, column := range columns {
				owner, class, _ := strings.Cut(column, "/")
				require.True(t, shredding.Class(class).Valid(), class)
				if fields[i+1] == "y" {
					reads[owner] = append(reads[owner], class)
				}
			}
			sort.Strings(reads["builtin"])
			sort.Strings(reads["foreign"])
			byRole[fields[0]] = reads
			out = append(out, expectation{name: "reads by " + fields[0], input: accessInput{"roles": []string{fields[0]}}, reads: reads})
		}
	}
	names, _ := declaredRoles(t)
	require.ElementsMatch(t, names, slices.Collect(maps.Keys(byRole)))
	none := map[string][]string{"builtin": {}, "foreign": {}}
	add := func(name string, input accessInput, reads map[string][]string) {
		out = append(out, expectation{name: name, input: input, reads: reads})
	}
	for _, role := range []string{"auditor", "compliance", "compliance_approver", "admin", "operator"} {
		add(role+" with other roles reads nothing", accessInput{"roles": []string{"module", role, "controller"}}, none)
	}
	granted := map[string][]string{"builtin": {"bank", "contact"}, "foreign": {"bank", "contact"}}
	add("auditor with a grant", accessInput{"roles": []string{"auditor"}, "service": false, "granted": []string{"contact", "bank"}}, granted)
	add("auditor with another role and a grant", accessInput{"roles": []string{"auditor", "vendor_admin"}, "service": false, "granted": []string{"contact", "bank"}}, granted)
	add("auditor with a grant of nonsense", accessInput{"roles": []string{"auditor"}, "service": false, "granted": []string{"shoe_size"}}, none)
	add("a service has no grant", accessInput{"roles": []string{"auditor"}, "service": true, "granted": []string{"contact"}}, none)
	add("another role has no grant", accessInput{"roles": []string{"compliance"}, "service": false, "granted": []string{"contact"}}, none)
	add("person in the role of a service", accessInput{"roles": []string{"module"}, "service": false}, none)
	add("two roles", accessInput{"roles": []string{"ap_clerk", "module"}}, map[string][]string{"builtin": {"contact", "free_text"}, "foreign": byRole["module"]["foreign"]})
	add("unknown role", accessInput{"roles": []string{"king"}}, none)
	add("no roles", accessInput{"roles": []string{}}, none)
	add("roles missing", accessInput{}, none)
	add("roles as text", accessInput{"roles": "controller"}, none)
	return out
}

func matrixCases(action, role string, allow bool, reason string) []expectation {
	ask := func(entity string, entitled []string, foreign bool) expectation {
		e := expectation{
			name:  fmt.Sprintf("%s by %s on %q of %v", action, role, entity, entitled),
			input: accessInput{"action": action, "roles": []string{role}, "legal_entity": entity, "entitled": entitled, "actor": person}, allow: allow, reason: reason,
		}
		if allow {
			e.reason = "allowed"
			switch {
			case foreign:
				e.allow, e.reason = false, "legal_entity"
			case len(entitled) > 0 && (strings.HasPrefix(action, "event_types.") && !strings.HasSuffix(action, "read") && !strings.HasSuffix(action, "check") || action == "legal_entities.create" || action == "webhooks.allow" || action == "access_log.read" || strings.HasPrefix(action, "disclosures.")):
				e.allow, e.reason = false, "tenant_wide"
			}
		}
		return e
	}
	return []expectation{
		ask("USMF", []string{"USMF"}, false), ask("USMF", []string{}, false), ask("", []string{"USMF"}, false),
		ask("DEMF", []string{"USMF", "FRSI"}, true),
	}
}

type answer struct {
	Allow  *bool  `json:"allow"`
	Reason string `json:"reason"`
}

func wrong(ctx context.Context, e *opa.Engine, x expectation) string {
	if x.reads != nil {
		var got map[string][]string
		if err := e.Decide(ctx, "data.backbone.authz.pii", x.input, &got); err != nil {
			return fmt.Sprintf("%s: %v", x.name, err)
		}
		if !reflect.DeepEqual(x.reads, got) {
			return fmt.Sprintf("%s: want %v, got %v", x.name, x.reads, got)
		}
		return ""
	}
	var got answer
	if err := e.Decide(ctx, "data.backbone.authz.decision", x.input, &got); err != nil {
		return fmt.Sprintf("%s: %v", x.name, err)
	}
	if got.Allow == nil || *got.Allow != x.allow || (x.reason != "" && got.Reason != x.reason) {
		return fmt.Sprintf("%s: want %v %s, got %+v", x.name, x.allow, x.reason, got)
	}
	return ""
}

func TestAccessMatrix(t *testing.T) {
	t.Parallel()
	_, rights := declaredRoles(t)
	e, err := opa.New(policies(nil), opa.WithData("roles", rights), timeEnough)
	require.NoError(t, err)
	all := expectations(t)
	require.Greater(t, len(all), 900)
	for _, x := range all {
		require.Empty(t, wrong(t.Context(), e, x))
	}
}

func TestAccessPolicyCoverage(t *testing.T) {
	t.Parallel()
	module, err := ast.ParseModule(authzPath, configs.Policies()[authzPath])
	require.NoError(t, err)
	parsed := map[string]*ast.Module{authzPath: module}
	compiler := ast.NewCompiler()
	compiler.Compile(parsed)
	require.False(t, compiler.Failed(), "%v", compiler.Errors)
	_, rights := declaredRoles(t)
	text, err := json.Marshal(map[string]any{"roles": rights})
	require.NoError(t, err)
	store := inmem.NewFromReader(bytes.NewReader(text))
	tracer := cover.New()
	for _, x := range expectations(t) {
		query := "data.backbone.authz.decision"
		if x.reads != nil {
			query = "data.backbone.authz.pii"
		}
		_, err := rego.New(rego.Query(query), rego.Compiler(compiler), rego.Store(store), rego.Input(map[string]any(x.input)), rego.QueryTracer(tracer)).Eval(t.Context())
		require.NoError(t, err)
	}
	require.GreaterOrEqual(t, tracer.Report(parsed).Coverage, 95.0)
}

// Every change of a rule or of a declared role must be noticed by the expectations. Which is asked first only
// decides how soon it is: the cases that no table shows, and among all those that are about
// what was changed.
func TestAccessPolicyMutants(t *testing.T) {
	t.Parallel()
	all := expectations(t)
	slices.Reverse(all)
	words := make([]string, len(all))
	for i, x := range all {
		words[i] = fmt.Sprint(x.name, x.input, x.reads)
	}
	_, rights := declaredRoles(t)
	mutants := append(mutantsOf(t, configs.Policies()[authzPath], rights), mutantsOfRoles(configs.Policies()[authzPath], rights)...)
	require.Greater(t, len(mutants), 110)
	var survivors []string
	for _, m := range mutants {
		e, err := opa.New(policies(map[string]string{authzPath: m.source}), opa.WithData("roles", m.rights), timeEnough)
		if err != nil {
			continue // does not compile: noticed at the start of the program
		}
		isAbout := func(i int) bool {
			return !slices.ContainsFunc(m.about, func(word string) bool { return !strings.Contains(words[i], word) })
		}
		catches := func(about bool) bool {
			for i, x := range all {
				if isAbout(i) == about && wrong(t.Context(), e, x) != "" {
					return true
				}
			}
			return false
		}
		if !catches(true) && !catches(false) {
			survivors = append(survivors, m.change)
		}
	}
	require.Empty(t, survivors)
	t.Logf("%d mutants, all caught", len(mutants))
}

type mutant struct {
	change, source string
	about          []string // words of the expectations that are asked first
	rights         roleRights
}

// mutantsOf changes one thing at a time: an expression is dropped or negated, a
// rule is dropped, a constant becomes another, a member leaves a set.
func mutantsOf(t *testing.T, source string, rights roleRights) (out []mutant) {
	t.Helper()
	parsed := ast.MustParseModule(source)
	for n := 0; ; n++ {
		module := parsed.Copy()
		changes := changesOf(module)
		if n == len(changes) {
			return out
		}
		changes[n].make()
		text, err := format.Ast(module)
		require.NoError(t, err)
		out = append(out, mutant{changes[n].name, string(text), changes[n].about, rights})
	}
}

// mutantsOfRoles change one declared role at a time: it is dropped, approves or not, or
// reads a class less or more.
func mutantsOfRoles(source string, rights roleRights) (out []mutant) {
	for role := range rights {
		add := func(change string, make func(roleRights)) {
			changed := maps.Clone(rights)
			make(changed)
			out = append(out, mutant{change + " of " + role, source, []string{role}, changed})
		}
		add("declaration", func(r roleRights) { delete(r, role) })
		add("approval", func(r roleRights) {
			changed := r[role]
			changed.Approves = !changed.Approves
			r[role] = changed
		})
		for _, class := range shredding.Classes() {
			add("class "+string(class), func(r roleRights) {
				changed := r[role]
				without := slices.DeleteFunc(slices.Clone(changed.Reads), func(c string) bool { return c == string(class) })
				if len(without) == len(changed.Reads) {
					without = append(without, string(class))
				}
				changed.Reads = without
				r[role] = changed
			})
		}
	}
	return out
}

type change struct {
	name  string
	about []string // the key of the rule, and the member that leaves a set
	make  func()
}

func changesOf(module *ast.Module) (out []change) {
	var about []string
	add := func(make func(), name string, args ...any) {
		out = append(out, change{name: fmt.Sprintf(name, args...), about: about, make: make})
	}
	changeTerm := func(term *ast.Term) bool {
		switch v := term.Value.(type) {
		case ast.Boolean:
			add(func() { *term = *ast.BooleanTerm(!bool(v)) }, "turn %v at %v", v, term.Location)
		case ast.Set:
			for _, member := range v.Slice() {
				add(func() { term.Value = v.Diff(ast.NewSet(member)) }, "drop %v from the set at %v", member, term.Location)
				if name, isText := member.Value.(ast.String); isText {
					out[len(out)-1].about = append(slices.Clip(about), string(name))
				}
			}
		}
		return false
	}
	for i, rule := range module.Rules {
		about = nil
		if ref := rule.Head.Ref(); len(ref) > 1 {
			if key, isText := ref[1].Value.(ast.String); isText {
				about = []string{string(key)}
			}
		}
		add(func() { module.Rules = append(module.Rules[:i:i], module.Rules[i+1:]...) }, "drop rule %v", rule)
		ast.WalkRules(rule, func(r *ast.Rule) bool {
			ast.WalkTerms(r.Head, changeTerm)
			isGenerated := r.Body.Equal(ast.NewBody(ast.NewExpr(ast.BooleanTerm(true)))) // the parser gives it to a rule without a body
			if !isGenerated || r != rule {                                               // else turning it is the same as dropping the rule
				ast.WalkTerms(r.Body, changeTerm)
			}
			for i, x := range r.Body {
				if isGenerated {
					continue
				}
				add(func() { x.Negated = !x.Negated }, "negate %v in %v", x, r.Head)
				if len(r.Body) > 1 {
					add(func() { r.Body = append(append(ast.Body{}, r.Body[:i]...), r.Body[i+1:]...) }, "drop %v from %v", x, r.Head)
				}
			}
			return false
		})
	}
	return out
}

func TestSamePerson(t *testing.T) {
	t.Parallel()
	type actor = map[string]any
	human := actor{"type": "human", "id": "u-1"}
	for name, c := range map[string]struct {
		other actor
		same  bool
	}{
		"itself":                    {human, true},
		"another":                   {actor{"type": "human", "id": "u-2"}, false},
		"agent for it":              {actor{"type": "agent", "id": "bot", "on_behalf_of": "u-1"}, true},
		"agent for another":         {actor{"type": "agent", "id": "bot", "on_behalf_of": "u-2"}, false},
		"agent of its own name":     {actor{"type": "agent", "id": "u-1", "on_behalf_of": "u-2"}, true},
		"service for it":            {actor{"type": "system", "id": "svc", "on_behalf_of": "u-1"}, true},
		"service of its own name":   {actor{"type": "external", "id": "u-1", "on_behalf_of": "u-2"}, false},
		"import on its own":         {actor{"type": "import", "id": "u-1"}, false},
		"human on its own, in text": {actor{"type": "human", "id": "u-1", "on_behalf_of": ""}, true},
		"actor without id":          {actor{"type": "human", "id": "", "on_behalf_of": ""}, false},
	} {
		for _, pair := range [][2]actor{{human, c.other}, {c.other, human}} {
			require.Equal(t, c.same, holds(t, "data.backbone.rules.same_person(input.a, input.b)", actor{"a": pair[0], "b": pair[1]}), name)
		}
	}
	service := actor{"type": "import", "id": "svc"}
	require.False(t, holds(t, "data.backbone.rules.same_person(input.a, input.b)", actor{"a": service, "b": service}))
}

func TestWithinLimit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		amount, limit string
		within        bool
	}{
		{"50000.00", "50000", true}, {"50000.01", "50000", false}, {"0.1", "0.1", true}, {"123456789012.34", "123456789012.33", false},
		{"1", "null", true}, {`"1"`, "2", false}, {"1", `"2"`, false}, {"null", "5", false},
	} {
		input := map[string]any{"amount": json.RawMessage(c.amount), "limit": json.RawMessage(c.limit)}
		require.Equal(t, c.within, holds(t, "data.backbone.rules.within_limit(input.amount, input.limit)", input), c)
	}
}

func holds(t *testing.T, condition string, input any) bool {
	t.Helper()
	e, err := opa.New(append(policies(nil), ports.PolicyModule{
		Path:   "test.rego",
		Source: "package test\n\ndefault holds := false\n\nholds if " + condition + "\n\nanswer := {\"holds\": holds}\n",
	}), opa.WithTimeout(time.Minute))
	require.NoError(t, err)
	var out struct{ Holds *bool }
	require.NoError(t, e.Decide(t.Context(), "data.test.answer", input, &out))
	require.NotNil(t, out.Holds)
	return *out.Holds
}

func BenchmarkAccess(b *testing.B) {
	input := struct {
		Action   string   `json:"action"`
		Roles    []string `json:"roles"`
		Entity   string   `json:"legal_entity"`
		Entitled []string `json:"entitled"`
	}{"intents.submit", []string{"ap_clerk"}, "USMF", []string{"USMF", "DEMF"}}
	for name, entries := range map[string]int{"evaluated": 0, "kept": 100} {
		b.Run(name, func(b *testing.B) {
			_, rights := declaredRoles(b)
			e, err := opa.New(policies(nil), opa.WithData("roles", rights), opa.WithCache(entries, "data.backbone.authz.decision"))
			require.NoError(b, err)
			b.ReportAllocs()
			for b.Loop() {
				var got answer
				if err := e.Decide(context.Background(), "data.backbone.authz.decision", input, &got); err != nil || !*got.Allow {
					b.Fatal(err)
				}
			}
		})
	}
}
