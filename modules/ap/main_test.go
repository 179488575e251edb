package ap_test

import (
	"flag"
	"os"
	"testing"

	"github.com/erpbackbone/backbone/modules/ap"
	"github.com/erpbackbone/backbone/test/moduletest"
)

var update = flag.Bool("update", false, "rewrite testdata/problems.json")

// problems are the problem documents of the codes of accounts payable.
var problems = moduletest.NewProblems("testdata/problems.json", update, "ap.", "payment.", "sod.", "gl.period.subledger_mismatch")

func TestMain(m *testing.M) {
	ap.CheckProblem = problems.Check
	os.Exit(problems.Run(m))
}
