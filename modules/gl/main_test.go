package gl_test

import (
	"flag"
	"os"
	"testing"

	"github.com/erpbackbone/backbone/modules/gl"
	"github.com/erpbackbone/backbone/test/moduletest"
)

var update = flag.Bool("update", false, "rewrite testdata/problems.json")

// problems are the problem documents of the codes of the general ledger.
var problems = moduletest.NewProblems("testdata/problems.json", update, "gl.")

func TestMain(m *testing.M) {
	gl.CheckProblem = problems.Check
	os.Exit(problems.Run(m))
}
