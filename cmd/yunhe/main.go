// Command yunhe is the whole platform in one program: the server's roles and
// the commands people use. `yunhe --help` is its manual.
//
// It keeps one promise to scripts: what was asked for goes to standard output,
// everything said on the way goes to standard error, and the exit status is 0
// if it was done, 1 if the request failed and 2 if it was never made because
// the command line is wrong. `job wait` and `job submit --follow` answer with
// the job's end instead: 0 succeeded, 1 failed, 2 stopped; `pool run` has that of
// its program, as a shell has it.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"yunhe.dev/yunhe/adapters/gateway/sandbox/runner"
)

// commands lists the commands in the order of the manual. Each sets its
// GroupID to one of the groups in root.go.
func commands(c *cli) []*cobra.Command {
	return []*cobra.Command{
		upCommand(c),
		serveCommand(c),
		gatewayCommand(c),
		poolCommand(c),
		doctorCommand(c),
		backupCommand(c),
		restorePlatformCommand(c),
		natsConfigCommand(c),
		driverCommand(c),
		jobCommand(c),
		volumeCommand(c),
		usageCommand(c),
		centerCommand(c),
		nodeCommand(c),
		allocationCommand(c),
		serviceCommand(c),
		simulationCommand(c),
		operationCommand(c),
		alarmCommand(c),
		resourceCommand(c),
		identifierCommand(c),
		tagCommand(c),
		topologyCommand(c),
		networkCommand(c),
		pluginCommand(c),
		accessCommand(c),
		specCommand(c),
		acceleratorCommand(c),
		measurementCommand(c),
		imageCommand(c),
		policyCommand(c),
		schedulerCommand(c),
		queueCommand(c),
		budgetCommand(c),
		reservationCommand(c),
		tenantCommand(c),
		userCommand(c),
		keyCommand(c),
		auditCommand(c),
		contextCommand(c),
		whoamiCommand(c),
		simCommand(c),
		availabilityCommand(c),
		versionCommand(c),
		completionCommand(c),
	}
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == runnerCommand { // the supervisor of one replica: nothing else is set up
		os.Exit(runner.Main(os.Args[2:]))
	}
	ctx := untilSignal()
	exit(ctx, newCLI().run(ctx, os.Args[1:]))
}
