# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_hostcni_global_optspecs
    string join \n h/help V/version
end

function __fish_hostcni_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_hostcni_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_hostcni_using_subcommand
    set -l cmd (__fish_hostcni_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c hostcni -n "__fish_hostcni_needs_command" -s h -l help -d 'Print help'
complete -c hostcni -n "__fish_hostcni_needs_command" -s V -l version -d 'Print version'
complete -c hostcni -n "__fish_hostcni_needs_command" -f -a "serve" -d 'Run the server (ExecStart= of hostcni.service)'
complete -c hostcni -n "__fish_hostcni_needs_command" -f -a "status" -d 'Show readiness, conf, socket, subnets and counts'
complete -c hostcni -n "__fish_hostcni_needs_command" -f -a "attachments" -d 'List the attachments: pod, container, interface, addresses'
complete -c hostcni -n "__fish_hostcni_needs_command" -f -a "monitor" -d 'Follow what happens, one line each'
complete -c hostcni -n "__fish_hostcni_needs_command" -f -a "wait-ready" -d 'Wait until the server is ready'
complete -c hostcni -n "__fish_hostcni_needs_command" -f -a "conf" -d 'Place, remove or show the CNI network configuration file'
complete -c hostcni -n "__fish_hostcni_needs_command" -f -a "doctor" -d 'Look for what keeps pods from their network, and say what to do'
complete -c hostcni -n "__fish_hostcni_needs_command" -f -a "explain" -d 'Tell all that the node knows of a pod, also of one that is gone'
complete -c hostcni -n "__fish_hostcni_needs_command" -f -a "import" -d 'Look for the addresses that host-local or openshift-sdn keeps, and take over from them'
complete -c hostcni -n "__fish_hostcni_needs_command" -f -a "log-level" -d 'Show or change what the running server logs'
complete -c hostcni -n "__fish_hostcni_needs_command" -f -a "config" -d 'Check or show hostcni\'s own configuration'
complete -c hostcni -n "__fish_hostcni_using_subcommand serve" -l listen -d 'Make a socket here and listen on it, instead of taking systemd\'s (for development)' -r -F
complete -c hostcni -n "__fish_hostcni_using_subcommand serve" -l root -d 'Read the configuration below this directory' -r -F
complete -c hostcni -n "__fish_hostcni_using_subcommand serve" -s h -l help -d 'Print help'
complete -c hostcni -n "__fish_hostcni_using_subcommand status" -l socket -d 'The server\'s socket' -r -F
complete -c hostcni -n "__fish_hostcni_using_subcommand status" -l json -d 'Print JSON'
complete -c hostcni -n "__fish_hostcni_using_subcommand status" -s h -l help -d 'Print help'
complete -c hostcni -n "__fish_hostcni_using_subcommand attachments" -l socket -d 'The server\'s socket' -r -F
complete -c hostcni -n "__fish_hostcni_using_subcommand attachments" -l json -d 'Print JSON'
complete -c hostcni -n "__fish_hostcni_using_subcommand attachments" -s h -l help -d 'Print help'
complete -c hostcni -n "__fish_hostcni_using_subcommand monitor" -l socket -d 'The server\'s socket' -r -F
complete -c hostcni -n "__fish_hostcni_using_subcommand monitor" -l json -d 'Print one JSON object a line'
complete -c hostcni -n "__fish_hostcni_using_subcommand monitor" -s h -l help -d 'Print help'
complete -c hostcni -n "__fish_hostcni_using_subcommand wait-ready" -l timeout -d 'How long to wait, for example 45s, 500ms or 2m' -r
complete -c hostcni -n "__fish_hostcni_using_subcommand wait-ready" -l socket -d 'The server\'s socket' -r -F
complete -c hostcni -n "__fish_hostcni_using_subcommand wait-ready" -s h -l help -d 'Print help'
complete -c hostcni -n "__fish_hostcni_using_subcommand conf; and not __fish_seen_subcommand_from place remove show" -s h -l help -d 'Print help'
complete -c hostcni -n "__fish_hostcni_using_subcommand conf; and not __fish_seen_subcommand_from place remove show" -f -a "place" -d 'Put the files in place, if the server is ready'
complete -c hostcni -n "__fish_hostcni_using_subcommand conf; and not __fish_seen_subcommand_from place remove show" -f -a "remove" -d 'Take away the files that hostcni placed; in a planned restart they stay where the settings say so'
complete -c hostcni -n "__fish_hostcni_using_subcommand conf; and not __fish_seen_subcommand_from place remove show" -f -a "show" -d 'Print each file as it would be placed, and what is there'
complete -c hostcni -n "__fish_hostcni_using_subcommand conf; and __fish_seen_subcommand_from place" -l force -d 'Do not ask the server whether it is ready'
complete -c hostcni -n "__fish_hostcni_using_subcommand conf; and __fish_seen_subcommand_from place" -s h -l help -d 'Print help'
complete -c hostcni -n "__fish_hostcni_using_subcommand conf; and __fish_seen_subcommand_from remove" -l boot -d 'Remove all that any boot left behind; does not ask systemd whether the service restarts'
complete -c hostcni -n "__fish_hostcni_using_subcommand conf; and __fish_seen_subcommand_from remove" -l force -d 'Remove them in a planned restart, too. A running server does not put them back'
complete -c hostcni -n "__fish_hostcni_using_subcommand conf; and __fish_seen_subcommand_from remove" -s h -l help -d 'Print help'
complete -c hostcni -n "__fish_hostcni_using_subcommand conf; and __fish_seen_subcommand_from show" -l json -d 'Print JSON'
complete -c hostcni -n "__fish_hostcni_using_subcommand conf; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help'
complete -c hostcni -n "__fish_hostcni_using_subcommand doctor" -l root -d 'Read the configuration below this directory' -r -F
complete -c hostcni -n "__fish_hostcni_using_subcommand doctor" -l socket -d 'The server\'s socket' -r -F
complete -c hostcni -n "__fish_hostcni_using_subcommand doctor" -l json -d 'Print JSON'
complete -c hostcni -n "__fish_hostcni_using_subcommand doctor" -s a -l all -d 'Show also what is fine'
complete -c hostcni -n "__fish_hostcni_using_subcommand doctor" -s h -l help -d 'Print help'
complete -c hostcni -n "__fish_hostcni_using_subcommand explain" -l socket -d 'The server\'s socket' -r -F
complete -c hostcni -n "__fish_hostcni_using_subcommand explain" -l json -d 'Print JSON'
complete -c hostcni -n "__fish_hostcni_using_subcommand explain" -s h -l help -d 'Print help'
complete -c hostcni -n "__fish_hostcni_using_subcommand import" -l network -d 'The network, as hostcni\'s configuration names it; needed when there are several' -r
complete -c hostcni -n "__fish_hostcni_using_subcommand import" -l directory -d 'The directory with one file for each address [default: /var/lib/cni/networks/NAME]' -r -F
complete -c hostcni -n "__fish_hostcni_using_subcommand import" -l root -d 'Read the configuration below this directory' -r -F
complete -c hostcni -n "__fish_hostcni_using_subcommand import" -l apply -d 'Keep away from live addresses until their pods end, and remove stale ones'
complete -c hostcni -n "__fish_hostcni_using_subcommand import" -l dry-run -d 'Only report (the default)'
complete -c hostcni -n "__fish_hostcni_using_subcommand import" -l json -d 'Print JSON'
complete -c hostcni -n "__fish_hostcni_using_subcommand import" -s h -l help -d 'Print help'
complete -c hostcni -n "__fish_hostcni_using_subcommand log-level" -l socket -d 'The server\'s socket' -r -F
complete -c hostcni -n "__fish_hostcni_using_subcommand log-level" -l reset -d 'Go back to the configuration\'s filter'
complete -c hostcni -n "__fish_hostcni_using_subcommand log-level" -s h -l help -d 'Print help'
complete -c hostcni -n "__fish_hostcni_using_subcommand config; and not __fish_seen_subcommand_from check show" -s h -l help -d 'Print help'
complete -c hostcni -n "__fish_hostcni_using_subcommand config; and not __fish_seen_subcommand_from check show" -f -a "check" -d 'Tell whether the configuration can be used'
complete -c hostcni -n "__fish_hostcni_using_subcommand config; and not __fish_seen_subcommand_from check show" -f -a "show" -d 'Show the merged configuration and where each value comes from'
complete -c hostcni -n "__fish_hostcni_using_subcommand config; and __fish_seen_subcommand_from check" -l root -d 'Look at the files below this directory instead of those of the running system' -r -F
complete -c hostcni -n "__fish_hostcni_using_subcommand config; and __fish_seen_subcommand_from check" -s h -l help -d 'Print help'
complete -c hostcni -n "__fish_hostcni_using_subcommand config; and __fish_seen_subcommand_from show" -l root -d 'Look at the files below this directory instead of those of the running system' -r -F
complete -c hostcni -n "__fish_hostcni_using_subcommand config; and __fish_seen_subcommand_from show" -l json -d 'Print JSON'
complete -c hostcni -n "__fish_hostcni_using_subcommand config; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help'
