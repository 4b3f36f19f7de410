package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// goBench runs a Go benchmark and returns its metrics by unit, for each of its parts.
func goBench(ctx context.Context, pkg, name, benchtime string) (map[string]map[string]float64, error) {
	cmd := exec.CommandContext(
		ctx, "go", "test", "-run", "^$", "-bench", "^Benchmark"+name+"$", "-benchtime", benchtime, "-timeout", "20m",
		pkg,
	) //nolint:gosec // our own
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	found := map[string]map[string]float64{}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) < 4 || !strings.HasPrefix(f[0], "Benchmark"+name) {
			continue
		}
		metrics := map[string]float64{}
		for i := 2; i+1 < len(f); i += 2 {
			if metrics[f[i+1]], err = strconv.ParseFloat(f[i], 64); err != nil {
				return nil, fmt.Errorf("%s says %q: %w", name, line, err)
			}
		}
		part := strings.TrimPrefix(strings.TrimPrefix(f[0], "Benchmark"+name), "/")
		if i := strings.LastIndexByte(part, '-'); i >= 0 {
			part = part[:i] // the number of processors
		}
		found[part] = metrics
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%s measured nothing:\n%s", name, out)
	}
	return found, nil
}

func firstStep(ctx context.Context, _ *bench) ([]row, error) {
	found, err := goBench(ctx, "./director/engine", "StartToFirstStep", "300x")
	if err != nil {
		return nil, err
	}
	m := found[""]
	return []row{{
		"commit of a start -> first step starts", "p99 < 100 ms",
		fmt.Sprintf("p99 %.0f ms, median %.0f ms, 300 starts", m["ms-p99"], m["ms-median"]),
		m["ms-p99"] < 100,
	}}, nil
}

func hooked(ctx context.Context, _ *bench) ([]row, error) {
	found, err := goBench(ctx, "./director/hooks", "CommitToFirstByte", "300x")
	if err != nil {
		return nil, err
	}
	m := found[""]
	return []row{{
		"commit of an event -> its hook has the request", "p99 < 250 ms",
		fmt.Sprintf("p99 %.0f ms, median %.0f ms, 300 events", m["ms-p99"], m["ms-median"]),
		m["ms-p99"] < 250,
	}}, nil
}

func noOp(ctx context.Context, _ *bench) ([]row, error) {
	found, err := goBench(ctx, "./director/engine", "NoOpRuns", "1x")
	if err != nil {
		return nil, err
	}
	m := found[""]
	return []row{{
		"no-op runs through the whole engine", ">= 50 / s, 1,000 queued drain without a stall",
		fmt.Sprintf("%.0f / s, longest pause %.2f s", m["runs/s"], m["s-longest-stall"]),
		m["runs/s"] >= 50 && m["s-longest-stall"] < 1,
	}}, nil
}

func planning(ctx context.Context, _ *bench) ([]row, error) {
	found, err := goBench(ctx, "./director/planner", "ThousandNodes", "10x")
	if err != nil {
		return nil, err
	}
	var rows []row
	for _, op := range []string{"create", "delete", "upgrade"} {
		m, measured := found[op]
		if !measured {
			continue
		}
		rows = append(rows, row{
			"plan for " + op + " of 1,000 nodes", "< 1 s, same bytes twice",
			fmt.Sprintf(
				"%.0f ms, longest of 10 %.0f ms, %.0f steps; same bytes", m["ms-median"], m["ms-longest"], m["steps"],
			), m["ms-longest"] < 1000,
		})
	}
	return rows, nil
}

func wide(ctx context.Context, _ *bench) ([]row, error) {
	found, err := goBench(ctx, "./director/engine", "ThousandNodes", "1x")
	if err != nil {
		return nil, err
	}
	m := found[""]
	return []row{{
		"steps of a 1,000-node plan through the engine", ">= 50 / s",
		fmt.Sprintf("%.0f / s over 4,002 steps", m["steps/s"]), m["steps/s"] >= 50,
	}}, nil
}

func overhead(ctx context.Context, _ *bench) ([]row, error) {
	found, err := goBench(ctx, "./director/daemon", "VMOverVSphere", "1x")
	if err != nil {
		return nil, err
	}
	m := found[""]
	return []row{{
		"a VM made by the director, above the hypervisor's own calls", "<= 1 s",
		fmt.Sprintf(
			"%.0f ms: %.0f ms by the director, %.0f ms by the calls alone, 30 VMs on vCenter's simulator",
			m["ms-overhead"], m["ms-director"], m["ms-raw"],
		),
		m["ms-overhead"] <= 1000,
	}}, nil
}

func certificates(ctx context.Context, _ *bench) ([]row, error) {
	found, err := goBench(ctx, "./director/daemon", "CertificateScan", "1x")
	if err != nil {
		return nil, err
	}
	m := found[""]
	return []row{{
		"a look at the certificates of 1,000 nodes whose API servers are away", "< 60 s",
		fmt.Sprintf("%.1f s, %.0f certificates", m["s-longest"], m["certificates"]), m["s-longest"] < 60,
	}}, nil
}

func backup(ctx context.Context, _ *bench) ([]row, error) {
	found, err := goBench(ctx, "./director/backups", "Gibibyte", "1x")
	if err != nil {
		return nil, err
	}
	var rows []row
	for _, target := range []string{"directory", "bucket"} {
		m, measured := found[target]
		if !measured {
			continue
		}
		rows = append(rows, row{
			"a snapshot of 1 GiB into a " + target, "<= 60 s, <= 100 MB more memory",
			fmt.Sprintf("%.1f s, %.0f MB more, archive %.0f MB", m["s"], m["MB-more"], m["MB-archive"]),
			m["s"] <= 60 && m["MB-more"] <= 100,
		})
	}
	return rows, nil
}

func consul(ctx context.Context, _ *bench) ([]row, error) {
	found, err := goBench(ctx, "./director/discovery", "EmptyConsul", "1x")
	if err != nil {
		return nil, err
	}
	m := found[""]
	return []row{{
		"200 clusters of 5 services in a Consul that came back empty", "<= 60 s",
		fmt.Sprintf(
			"%.1f s for %.0f entries, and at most 18 s until the director looks; %.2f s when nothing changed",
			m["s-longest"], m["entries"], m["s-unchanged"],
		), m["s-longest"]+18 <= 60,
	}}, nil
}
