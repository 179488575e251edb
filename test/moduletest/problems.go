package moduletest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/erpbackbone/backbone/adapters/httpapi"
	"github.com/erpbackbone/backbone/adapters/prometheus"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/configs"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// Problems keeps the problem document of each code of a module in a file, as the API answers it, so that
// people can read what callers read. Tests may be refused with a code many times; the file has one of the
// documents.
type Problems struct {
	file     string
	update   *bool
	prefixes []string

	mu       sync.Mutex
	expected map[string]string          // by code
	provoked map[string]map[string]bool // by code, the documents of this run
}

// NewProblems makes the Problems of the codes that begin with any of the prefixes. If update is
// set, Run writes the file.
func NewProblems(file string, update *bool, prefixes ...string) *Problems {
	return &Problems{file: file, update: update, prefixes: prefixes, expected: map[string]string{}, provoked: map[string]map[string]bool{}}
}

// Check fails the test if err is a refusal of the module whose code is not in the file, or has another
// status there. Other errors pass, and so does every error if p is nil.
func (p *Problems) Check(t testing.TB, err error) {
	t.Helper()
	f, refused := fault.As(err)
	if p == nil || !refused || !slices.ContainsFunc(p.prefixes, func(prefix string) bool { return strings.HasPrefix(f.Code, prefix) }) {
		return
	}
	code := f.Code
	if rule, ok := f.Attributes["rule"]; ok {
		code += fmt.Sprint(" ", rule)
	}
	document := problemOf(err)
	p.mu.Lock()
	defer p.mu.Unlock()
	isFirst := p.provoked[code] == nil
	if isFirst {
		p.provoked[code] = map[string]bool{}
	}
	p.provoked[code][document] = true
	switch expected, ok := p.expected[code]; {
	case *p.update || !isFirst:
	case !ok:
		t.Errorf("%s has no problem document of %s; run the tests of the package with -update", p.file, code)
	case statusOf(expected) != statusOf(document):
		t.Errorf("the problem document of %s in %s has another status than %s; run the tests of the package with -update", code, p.file, document)
	}
}

// Run runs the tests of a package as testkit.Run does. If all of them ran and passed, with those that need
// PostgreSQL, each document of the file must be one of those that they were refused with.
func (p *Problems) Run(m *testing.M) (exitCode int) {
	if err := p.read(); err != nil {
		fmt.Println("FAIL:", err)
		return 1
	}
	exitCode = testkit.Run(m)
	if exitCode != 0 {
		return exitCode
	}
	ranAll := os.Getenv("BACKBONE_REQUIRE_POSTGRES") != "" // else tests may have been skipped
	for _, selection := range []string{"test.run", "test.list", "test.fuzz"} {
		ranAll = ranAll && flag.Lookup(selection).Value.String() == ""
	}
	if *p.update {
		if err := p.write(ranAll); err != nil {
			fmt.Println("FAIL:", err)
			return 1
		}
		return 0
	}
	if !ranAll {
		return 0
	}
	for _, difference := range p.differences() {
		fmt.Println("FAIL:", difference)
		exitCode = 1
	}
	return exitCode
}

// differences lists the documents of the file that no test was answered with.
func (p *Problems) differences() (found []string) {
	for _, code := range slices.Sorted(maps.Keys(p.expected)) {
		if provoked := p.provoked[code]; len(provoked) == 0 {
			found = append(found, fmt.Sprintf("%s has a problem document of %s, which no test provokes; run the tests of the package with -update", p.file, code))
		} else if !provoked[p.expected[code]] {
			found = append(found, fmt.Sprintf("no test is answered with the problem document of %s in %s; one is answered with\n\t%s\nRun the tests of the package with -update, and read what changed.",
				code, p.file, shortest(provoked)))
		}
	}
	return found
}

func (p *Problems) read() error {
	text, err := os.ReadFile(p.file)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	var documents map[string]json.RawMessage
	if err := json.Unmarshal(text, &documents); err != nil {
		return fmt.Errorf("%s: %w", p.file, err)
	}
	for code, document := range documents {
		var compact bytes.Buffer
		if err := json.Compact(&compact, document); err != nil {
			return err
		}
		p.expected[code] = compact.String()
	}
	return nil
}

// write writes the file with the documents that it has and tests still provoke. Those of codes that no
// test provokes stay if not all tests ran.
func (p *Problems) write(ranAll bool) error {
	documents := map[string]json.RawMessage{}
	for code, expected := range p.expected {
		if p.provoked[code][expected] || !ranAll {
			documents[code] = json.RawMessage(expected)
		}
	}
	for code, found := range p.provoked {
		if !found[p.expected[code]] {
			documents[code] = json.RawMessage(shortest(found))
		}
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(documents); err != nil {
		return err
	}
	return os.WriteFile(p.file, text.Bytes(), 0o600)
}

// shortest chooses one of several documents.
func shortest(documents map[string]bool) string {
	return slices.MinFunc(slices.Collect(maps.Keys(documents)), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
	})
}

// changing finds what differs between two runs of a test.
var changing = []struct {
	pattern *regexp.Regexp
	name    string
}{
	{regexp.MustCompile(`[0-7][0-9A-HJKMNP-TV-Z]{25}`), "ULID"},
	{regexp.MustCompile(`\b[0-9a-f]{64}\b`), "SHA256"},
	{regexp.MustCompile(`"sequence":"[0-9]+"`), `"sequence":"N"`},
}

// problemOf is the body that the API answers an error with.
func problemOf(err error) string {
	answer := httptest.NewRecorder()
	request := httptest.NewRequest(http.MethodGet, "/api/events/x", nil)
	problemServer().ServeHTTP(answer, request.WithContext(context.WithValue(request.Context(), refusalKey{}, err)))
	document := answer.Body.String()
	for _, c := range changing {
		document = c.pattern.ReplaceAllString(document, c.name)
	}
	return document
}

func statusOf(document string) string {
	var p struct {
		Title  string `json:"title"`
		Status int    `json:"status"`
	}
	_ = json.Unmarshal([]byte(document), &p) // anything else has no status
	return fmt.Sprint(p.Status, " ", p.Title)
}

type refusalKey struct{}

// refusingAccess refuses each request with the error in its context.
type refusingAccess struct{ httpapi.Access }

func (refusingAccess) Authenticate(ctx context.Context, _ string) (ports.Principal, error) {
	return ports.Principal{}, ctx.Value(refusalKey{}).(error)
}

// problemServer is an API that refuses every request.
var problemServer = sync.OnceValue(func() http.Handler {
	c, metrics := configs.Default(), prometheus.New()
	return testkit.Must(httpapi.New(httpapi.Config{
		Access: refusingAccess{}, Catalog: testkit.Must(module.Build(nil)), Logger: slog.New(slog.DiscardHandler),
		Metrics: metrics, MetricsPage: metrics.Handler(), Ready: func(context.Context) map[string]error { return nil },
		Limits: httpapi.Limits{
			BodyBytes: int64(c.HTTP.BodyLimitBytes), EventBytes: c.Limits.EventBytes, EventNodes: c.Limits.Nodes, Depth: c.Limits.Depth, BatchEvents: c.Limits.BatchEvents,
			EntityRefs: c.Limits.EntityRefs, Tags: c.Limits.Tags, Body: c.HTTP.ReadTimeout, Request: c.HTTP.RequestTimeout, Requests: c.HTTP.RequestsInFlight,
			Bytes: int64(c.HTTP.BytesInFlight), PrincipalRequests: c.HTTP.PrincipalRequests, PrincipalBytes: int64(c.HTTP.PrincipalBytes), PaperBytes: int64(c.HTTP.PaperBytes),
		},
	})).Handler()
})
