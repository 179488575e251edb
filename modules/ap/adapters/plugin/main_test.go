package plugin_test

import (
	"os"
	"testing"

	"github.com/erpbackbone/backbone/test/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Run(m)) }
