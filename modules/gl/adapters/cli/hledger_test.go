package cli_test

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/gl/adapters/cli"
	"github.com/erpbackbone/backbone/modules/gl/domain"
)

func hledger(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "hledger", args...)
	cmd.Env = append(os.Environ(), "LANG=C.UTF-8", "LC_ALL=C.UTF-8")
	var errors bytes.Buffer
	cmd.Stderr = &errors
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, errors.String())
	}
	return string(out), err
}

// compareDepartments compares what hledger adds up by the tag department with the balances by
// dimension of an account.
func (b *bookFixture) compareDepartments(t *testing.T, file, asOf string, known int) {
	t.Helper()
	table, err := hledger(t, "-f", file, "bal", "acct:6000", "--pivot", "department", "--flat", "--no-total", "--layout=bare", "-O", "csv")
	require.NoError(t, err)
	rows, err := csv.NewReader(strings.NewReader(table)).ReadAll()
	require.NoError(t, err)
	got := map[string]string{}
	for _, row := range rows[1:] {
		department, err := url.QueryUnescape(row[0])
		require.NoError(t, err)
		got[department] = row[2]
	}
	var report struct {
		Rows []struct {
			Dimensions map[string]string
			Balance    string
		}
	}
	require.NoError(t, b.ReadModel(t.Context(), "gl/dimension-balances", url.Values{
		"as_of": {asOf}, "known_at": {"seq:" + strconv.Itoa(known)}, "account": {"6000"}, "dimensions": {"department"},
	}, &report))
	require.NotEmpty(t, report.Rows)
	for _, r := range report.Rows {
		department := strings.Replace(r.Dimensions["department"], "none", "", 1)
		require.Equal(t, money.MustNumber(r.Balance).String(), money.MustNumber(cmp.Or(got[department], "0")).String(), "department %q: %v", department, got)
	}
}

// TestWriteHledger_Balances has another program add up the export: it passes the strict checks and
// has the balances of the trial balance, on both axes.
func TestWriteHledger_Balances(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("hledger"); err != nil {
		t.Skip("hledger is not installed; apt-get install hledger")
	}
	b := newBookFixture(t)
	b.randomMonth(t)
	for _, c := range []struct {
		asOf  string
		known int
	}{{"2026-12-31", int(b.sequence)}, {"2026-03-17", int(b.sequence)}, {"2026-03-31", int(b.sequence) / 2}, {"2026-03-09", int(b.sequence) - 7}} {
		for _, functional := range []bool{true, false} {
			var text bytes.Buffer
			journals, err := cli.WriteHledger(t.Context(), b, &text, cli.Options{LegalEntity: "DEMF", AsOf: c.asOf, KnownAt: "seq:" + strconv.Itoa(c.known)}, functional)
			require.NoError(t, err)
			require.Positive(t, journals)
			require.NotContains(t, text.String(), "Jane Doe")
			file := filepath.Join(t.TempDir(), "books.journal")
			require.NoError(t, os.WriteFile(file, text.Bytes(), 0o600))
			_, err = hledger(t, "-f", file, "check")
			require.NoError(t, err)
			_, err = hledger(t, "-f", file, "check", "--strict")
			require.NoError(t, err)
			table, err := hledger(t, "-f", file, "bal", "--flat", "--no-total", "--layout=bare", "-O", "csv")
			require.NoError(t, err)
			rows, err := csv.NewReader(strings.NewReader(table)).ReadAll()
			require.NoError(t, err)
			got := map[string]string{}
			for _, row := range rows[1:] {
				if n := money.MustNumber(strings.ReplaceAll(row[2], ",", "")); !n.IsZero() {
					got[row[0]+" "+row[1]] = n.String()
				}
			}
			currencies := []string{"functional"}
			if !functional {
				currencies = []string{"EUR", "USD", "JPY", "KWD"}
			}
			require.Equal(t, b.balances(t, c.asOf, c.known, currencies...), got, "%+v, functional %v", c, functional)
			if functional {
				b.compareDepartments(t, file, c.asOf, c.known)
			}

			// One cent more on one posting is found.
			first := strings.Index(text.String(), "\n    1000  ")
			end := first + 1 + strings.Index(text.String()[first+1:], "\n")
			changed := text.String()[:end] + "\n    1000  1 " + map[bool]string{true: "EUR", false: "JPY"}[functional] + text.String()[end:]
			require.NoError(t, os.WriteFile(file, []byte(changed), 0o600))
			_, err = hledger(t, "-f", file, "check", "--strict")
			require.Error(t, err)
		}
	}
}

func TestWriteHledger_Text(t *testing.T) {
	t.Parallel()
	b := newBookFixture(t)
	b.add(domain.EventJournalPosted, "2026-03-02", `{"journal_number": "GJ-2026-000001", "journal_type": "general", "description": "x", "functional_currency": "EUR", "lines": [
		{"line_number": 1, "account": "6000", "debit_credit": "debit", "amount": 10, "currency": "USD", "amount_in_reporting_currency": 9, "dimensions": {"department": "R & D, north", "date": "x"}},
		{"line_number": 2, "account": "1000", "debit_credit": "credit", "amount": 10, "currency": "USD", "amount_in_reporting_currency": 9}]}`)
	b.apply(t)
	var progress []uint64
	var text bytes.Buffer
	journals, err := cli.WriteHledger(t.Context(), b, &text, cli.Options{LegalEntity: "DEMF", Progress: func(done, _ uint64) { progress = append(progress, done) }}, true)
	require.NoError(t, err)
	require.Equal(t, 1, journals)
	require.Equal(t, []uint64{uint64(b.sequence)}, progress)
	require.True(t, strings.HasPrefix(text.String(), "; legal entity DEMF, functional currency, effective by 2026-12-31, known at sequence 10\ndecimal-mark .\n\ncommodity 1000.00 EUR\n\naccount 1000  ; type:A, name:Account%2C%20no.%200\n"), text.String())
	last := b.events[len(b.events)-1]
	require.True(t, strings.HasSuffix(text.String(), "\n2026-03-02 (GJ-2026-000001) general\n"+
		"    ; event:"+last.ID.String()+", intent:, correlation:order%2012%2C%20part%203, recorded:2026-03-01T00:00:10.000000Z\n"+
		"    6000  9.00 EUR  ; dimension_date:x, department:R%20%26%20D%2C%20north\n"+
		"    1000  -9.00 EUR\n"), text.String())
	require.True(t, slices.IsSorted(progress))
}

func TestCommand_Usage(t *testing.T) {
	for _, variable := range []string{"BACKBONE_LEGAL_ENTITY", "BACKBONE_TOKEN", "BACKBONE_SERVER"} {
		t.Setenv(variable, "")
	}
	for line, want := range map[string]string{
		"export": "required flag", "export --format saft --legal-entity DEMF --token t -o x": "--format is hledger, saf-t or gobd",
		"export --format hledger --basis both --legal-entity DEMF --token t -o x":                  "--basis is functional or transaction",
		"export --format hledger --from 2026-01-01 --legal-entity DEMF -o x":                       "leave --from out",
		"export --format saf-t --legal-entity DEMF -o x":                                           "add --from",
		"export --format saf-t --from 2026-01-01 --legal-entity DEMF -o x":                         "needs --company",
		"export --format gobd --from 2026-01-01 --legal-entity DEMF -o -":                          "writes a folder",
		"export --format gobd --from 2026-02-30 --legal-entity DEMF -o x":                          "--from is a date",
		"export --format gobd --from 2026-02-01 --to 2026-01-01 --legal-entity DEMF -o x":          "is after --to",
		"export --format gobd --from 2026-02-01 --to 2026-03-01 --as-of 2026-03-01 -o x":           "[as-of to]",
		"export --format gobd --from 2026-02-01 --legal-entity DEMF --company none --token t -o x": "not a file",
		"export --format hledger --token t -o x":                                                   "no legal entity",
		"export --format hledger --legal-entity DEMF -o x":                                         "no access token",
	} {
		cmd := cli.Command()
		cmd.SetArgs(strings.Fields(line))
		cmd.SetOut(&bytes.Buffer{})
		cmd.SetErr(&bytes.Buffer{})
		require.ErrorContains(t, cmd.Execute(), want, line)
	}
}
