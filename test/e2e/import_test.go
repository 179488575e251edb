package e2e

import (
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/test/testkit"
)

// importReport is what `ap import --json` prints.
type importReport struct {
	Files []struct {
		File       string `json:"file"`
		Status     string `json:"status"`
		Code       string `json:"code"`
		DocumentID string `json:"document_id"`
		Paper      string `json:"paper"`
		Kind       string `json:"kind"`
		Violations []struct {
			Rule string `json:"rule"`
		} `json:"violations"`
	} `json:"files"`
	Totals struct {
		Accepted          int `json:"accepted"`
		Duplicate         int `json:"duplicate"`
		Refused           int `json:"refused"`
		Failed            int `json:"failed"`
		VendorsRegistered int `json:"vendors_registered"`
	} `json:"totals"`
}

// requirePaper downloads the paper of a document, which is the file to the byte.
func requirePaper(t *testing.T, d *dev, entity, document, file string) {
	t.Helper()
	kept := filepath.Join(t.TempDir(), "kept")
	download := func(persona string) result {
		return d.as(t, persona).command(t, "ap", "paper", "--legal-entity", entity, document, "-o", kept)
	}
	refused := download("auditor")
	require.NotZero(t, refused.code)
	require.Contains(t, refused.stderr, "paper.forbidden")
	require.NoFileExists(t, kept)
	require.Zero(t, download("ap_clerk").code)
	require.Equal(t, testkit.Must(os.ReadFile(file)), testkit.Must(os.ReadFile(kept)))
	require.NotZero(t, download("ap_clerk").code, "a file that exists is not overwritten")
}

func importFiles(t *testing.T, d *dev, entity, folder string) (importReport, result) {
	t.Helper()
	r := d.as(t, "importer").command(t, "ap", "import", "--json", "--legal-entity", entity, folder)
	var report importReport
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &report), r)
	return report, r
}

// hold is the data of an ap.*.held event.
type hold struct {
	ID     string `json:"hold_id"`
	Kind   string `json:"kind"`
	Blocks string `json:"blocks"`
}

// approveDocument releases the holds of a document and approves it with every required role.
func approveDocument(t *testing.T, d *dev, entity, kind, id string) (releases int) {
	t.Helper()
	events, err := d.as(t, "auditor").events(url.Values{"stream_type": {"entity"}, "stream_id": {kind + ":" + id}, "legal_entity": {entity}})
	require.NoError(t, err)
	for _, e := range events {
		if e.Type != "ap."+kind+".held" {
			continue
		}
		var h hold
		require.NoError(t, json.Unmarshal(e.Data, &h))
		if h.Blocks != "approval" {
			continue
		}
		d.as(t, "controller").must(t, entity, "ap.release_hold", object{kind + "_id": id, "hold_id": h.ID, "reason": "Compared with the paper: " + h.Kind})
		releases++
	}
	for _, role := range []string{"approver", "controller", "cfo"} {
		a, err := d.as(t, role).submit(entity, "ap.approve_"+kind, object{kind + "_id": id})
		require.NoError(t, err)
		if a.code() == "ap.approval.over_limit" {
			continue
		}
		require.Equal(t, http.StatusCreated, a.status, "%s %s: %s", kind, id, a)
		var out outcome
		require.NoError(t, a.decode(&out))
		if out.event("gl.journal.posted") != "" {
			require.NotEmpty(t, out.event("ap."+kind+".approved"))
			require.NotEmpty(t, out.event("ap."+kind+".posted"))
			return releases
		}
		require.NotEmpty(t, out.event("ap."+kind+".approval_recorded"))
	}
	t.Fatalf("no role could approve %s %s", kind, id)
	return 0
}

type trialBalance struct {
	Currency string `json:"currency"`
	Accounts []struct {
		Account string `json:"account"`
		Name    string `json:"name"`
		Debit   string `json:"debit"`
		Credit  string `json:"credit"`
		Balance string `json:"balance"`
	} `json:"accounts"`
	TotalDebit  string `json:"total_debit"`
	TotalCredit string `json:"total_credit"`
}

func rat(t *testing.T, text string) *big.Rat {
	t.Helper()
	r, ok := new(big.Rat).SetString(text)
	require.True(t, ok, text)
	return r
}

// requireBooksAgree proves that debit is credit and that the subledger is the control
// account, at the head of the log.
func requireBooksAgree(t *testing.T, d *dev, entity string) (postings trialBalance, openItems int) {
	t.Helper()
	auditor := d.as(t, "auditor")
	head, err := auditor.head(entity)
	require.NoError(t, err)
	q := "?legal_entity=" + entity + "&min_sequence=" + head
	require.NoError(t, auditor.wantCaughtUp(&postings, "/api/gl/trial-balance"+q))
	require.Equal(t, postings.TotalDebit, postings.TotalCredit)
	debit, credit, control := new(big.Rat), new(big.Rat), new(big.Rat)
	for _, a := range postings.Accounts {
		debit.Add(debit, rat(t, a.Debit))
		credit.Add(credit, rat(t, a.Credit))
		require.Zero(t, new(big.Rat).Sub(rat(t, a.Debit), rat(t, a.Credit)).Cmp(rat(t, a.Balance)), a.Account)
		if a.Account == "2000" {
			control = rat(t, a.Balance)
		}
	}
	require.Zero(t, debit.Cmp(rat(t, postings.TotalDebit)))
	require.Zero(t, credit.Cmp(debit))

	open := new(big.Rat)
	for cursor := ""; ; {
		var page struct {
			Rows []struct {
				OpenFunctional string `json:"open_functional"`
			} `json:"rows"`
			HasMore    bool   `json:"has_more"`
			NextCursor string `json:"next_cursor"`
		}
		require.NoError(t, auditor.wantCaughtUp(&page, "/api/ap/open-items"+q+"&limit=4&cursor="+url.QueryEscape(cursor)))
		for _, row := range page.Rows {
			open.Add(open, rat(t, row.OpenFunctional))
		}
		openItems += len(page.Rows)
		if !page.HasMore {
			break
		}
		cursor = page.NextCursor
	}
	require.Zero(t, open.Cmp(control.Neg(control)), "open items %s, control account %s", open.FloatString(2), control.FloatString(2))
	return postings, openItems
}

// controlLinesTraced follows every posting on the control account back to its file
// and returns the files that were reached.
func controlLinesTraced(t *testing.T, d *dev, entity string, papers map[string]string) map[string]bool {
	t.Helper()
	auditor := d.as(t, "auditor")
	journals, err := auditor.events(url.Values{"stream_type": {"type"}, "stream_id": {"gl.journal.posted"}, "legal_entity": {entity}})
	require.NoError(t, err)
	reached := map[string]bool{}
	for _, journal := range journals {
		var data struct {
			Lines []struct {
				Account string `json:"account"`
			} `json:"lines"`
		}
		require.NoError(t, json.Unmarshal(journal.Data, &data))
		for _, line := range data.Lines {
			if line.Account != "2000" {
				continue
			}
			var chain struct {
				Lineage   []event `json:"lineage"`
				Truncated bool    `json:"truncated"`
			}
			require.NoError(t, auditor.want(200, &chain, "GET", "/api/events/"+journal.ID+"/lineage?legal_entity="+entity, ""))
			require.False(t, chain.Truncated)
			root := chain.Lineage[0]
			require.Regexp(t, `^ap\.(invoice|credit_memo)\.submitted$`, root.Type)
			require.Equal(t, "batch", root.Metadata.Source.Channel)
			file, known := papers[root.Metadata.Source.Reference]
			require.True(t, known, "%s names no file of the import: %s", root.ID, root.Metadata.Source.Reference)
			reached[file] = true
		}
	}
	return reached
}

// TestRealDocuments imports, approves and posts the corpus of the European standard, and
// verifies the books.
func TestRealDocuments(t *testing.T) {
	t.Parallel()
	folder := testkit.SharedData(t, "en16931/ubl/examples")
	d := sharedDev(t)
	const entity = "DEMF"

	report, r := importFiles(t, d, entity, folder)
	require.Equal(t, 1, r.code, "one file is refused\n%s", r.stderr)
	require.Equal(t, []int{15, 3, 1, 0, 13}, []int{
		report.Totals.Accepted, report.Totals.Duplicate, report.Totals.Refused, report.Totals.Failed, report.Totals.VendorsRegistered,
	}, r.stdout)
	require.Len(t, report.Files, 19)
	kinds := map[string]int{}
	for _, f := range report.Files {
		switch f.Status {
		case "accepted":
			kinds[f.Kind]++
		case "refused":
			require.Equal(t, "ap.invoice.duplicate", f.Code)
		}
	}
	require.Equal(t, map[string]int{"invoice": 13, "credit_memo": 2}, kinds)

	again, r := importFiles(t, d, entity, folder)
	require.Equal(t, 1, r.code)
	require.Equal(t, []int{0, 18, 1}, []int{again.Totals.Accepted, again.Totals.Duplicate, again.Totals.Refused}, r.stdout)
	require.Zero(t, again.Totals.VendorsRegistered)
	for i, f := range again.Files {
		require.Equal(t, report.Files[i].File, f.File)
		if report.Files[i].Status == "accepted" {
			require.Equal(t, report.Files[i].DocumentID, f.DocumentID, "a duplicate names the first document")
		}
	}

	papers, accepted := map[string]string{}, map[string]bool{}
	releases := 0
	for _, f := range report.Files {
		if f.Status != "accepted" {
			continue
		}
		if len(papers) == 0 {
			requirePaper(t, d, entity, f.DocumentID, f.File)
		}
		papers[f.Paper], accepted[f.File] = f.File, true
		releases += approveDocument(t, d, entity, f.Kind, f.DocumentID)
	}
	t.Logf("%d holds released", releases)

	postings, items := requireBooksAgree(t, d, entity)
	require.Equal(t, "EUR", postings.Currency)
	require.NotEqual(t, "0.00", postings.TotalDebit)
	require.Equal(t, accepted, controlLinesTraced(t, d, entity, papers))
	require.LessOrEqual(t, items, 15, "a document of total zero is paid at once")

	verdict := command(t, nil, "verify", "--dsn", d.DSN, "--legal-entity", entity)
	require.Zero(t, verdict.code, verdict)
}

// TestDrillConcurrentImporters lets four imports of one folder race: each document is taken
// by one of them, each vendor registered by one.
func TestDrillConcurrentImporters(t *testing.T) {
	t.Parallel()
	const entity, importers = "DEMF", 4
	d := sharedDev(t)
	folder := t.TempDir()
	require.NoError(t, copyFolder(repository(t, "test", "samples", "ubl"), folder))
	require.NoError(t, os.RemoveAll(filepath.Join(folder, "refused")))

	reports := make([]importReport, importers)
	t.Run("race", func(t *testing.T) {
		for i := range importers {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				var r result
				reports[i], r = importFiles(t, d, entity, folder)
				require.Zero(t, r.code, r)
			})
		}
	})
	accepted, documents, vendors := map[string]int{}, map[string]string{}, 0
	for _, report := range reports {
		require.Len(t, report.Files, 6)
		vendors += report.Totals.VendorsRegistered
		for _, f := range report.Files {
			if f.Status == "accepted" {
				accepted[f.File]++
			} else {
				require.Equal(t, "duplicate", f.Status, f)
			}
			require.NotEmpty(t, f.DocumentID)
			if documents[f.File] == "" {
				documents[f.File] = f.DocumentID
			}
			require.Equal(t, documents[f.File], f.DocumentID, "all of them name the same document")
		}
	}
	require.Equal(t, 5, vendors)
	require.Len(t, accepted, 6)
	for file, times := range accepted {
		require.Equal(t, 1, times, file)
	}
}
